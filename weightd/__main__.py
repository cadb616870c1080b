"""``python -m weightd`` is the ``weightd`` command."""

import sys

from weightd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
