"""A small filesystem of a kind of its own, mounted for one test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

MB: Final = 1 << 20

SIZE: Final = 320 * MB
"""mkfs.xfs makes none smaller than 300 MB."""

MAKERS: Final[Mapping[str, tuple[str, ...]]] = {
    # Without blocks for root alone, which the daemon is here.
    "ext4": ("mkfs.ext4", "-q", "-b", "4096", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q"),
    # Data and metadata together, as it is advised for one that is small.
    "btrfs": ("mkfs.btrfs", "-q", "--mixed"),
}

KINDS: Final = [
    pytest.param("tmpfs", marks=pytest.mark.needs("root", "mount")),
    *(
        pytest.param(kind, marks=pytest.mark.needs("root", "mount", maker[0]))
        for kind, maker in MAKERS.items()
    ),
]


@contextmanager
def mounted(kind: str, place: Path, options: str = "") -> Iterator[Path]:
    """A new filesystem of ``SIZE`` bytes, on a sparse file below ``place``, until it is left."""
    point = place / "disk"
    point.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "weightd-test", str(point))
    else:
        image = backing_file(place)
        with image.open("wb") as file:
            file.truncate(SIZE)
        run(*MAKERS[kind], str(image))
        loop = ("-o", "loop" + (f",{options}" if options else ""))
        run("mount", "-t", kind, *loop, str(image), str(point))
    try:
        yield point
    finally:
        run("umount", str(point))


def backing_file(place: Path) -> Path:
    """Where the bytes of a filesystem that was made below ``place`` are."""
    return place / "image"


def run(*command: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)


def available(point: Path) -> int:
    """Bytes that the filesystem has for its users."""
    answer = os.statvfs(point)
    return answer.f_bavail * answer.f_frsize
