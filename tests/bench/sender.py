"""A process that puts bytes as fast as they are taken: ``sender SOCKET KEY BYTES``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.bench.client import Connection, request

_CHUNK: Final = 1 << 20


def main() -> None:
    path, key, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    chunk = os.urandom(_CHUNK)
    with Connection(path) as connection:
        connection.send(request("PUT", f"/v1/models/{key}", size))
        for start in range(0, size, _CHUNK):
            connection.send(chunk[: size - start])
        connection.receive()


if __name__ == "__main__":
    main()
