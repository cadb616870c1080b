"""What may befall a file: of a database, or of a model."""

from __future__ import annotations

import os
from pathlib import Path


def overwrite_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"not a database at all")


def overwrite_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(5000)


def flip_byte(path: Path, at: int = 0) -> None:
    """Change a byte as a disk does: no look at the file shows it."""
    before = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    path.chmod(before.st_mode & 0o7777)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
