"""What may befall a database file."""

from __future__ import annotations

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
