"""The hub's own client: ``snapshot REPOSITORY DIRECTORY`` prints the seconds that it took.

In a process of its own, whose start and imports are not counted.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    from huggingface_hub import snapshot_download

    repository, directory = sys.argv[1:]
    begun = time.perf_counter()
    snapshot_download(repository, cache_dir=directory)
    print(time.perf_counter() - begun)


if __name__ == "__main__":
    main()
