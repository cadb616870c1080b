"""The image's health check: ask /healthz at the admin socket, and say by the exit code.

The socket is that of the settings, or of ``WEIGHTD_SOCKET``, as for every command.
"""

from __future__ import annotations

import sys

from weightd.client import Client
from weightd.client.effects import Request
from weightd.errors import WeightdError


def main() -> int:
    """0 when the daemon is well, else 1."""
    try:
        with Client(patience=0.0) as client:
            client.run(client.asking.document(Request("GET", "/healthz", patience=7.0)))
    except WeightdError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
