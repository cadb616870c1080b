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
def mounted(kind: str, place: Path) -> Iterator[Path]:
    """A new filesystem of ``SIZE`` bytes below ``place``, until it is left."""
    point = place / "disk"
    if kind == "tmpfs":
        point.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "weightd-test", str(point))
        try:
            yield point
        finally:
            run("umount", str(point))
        return
    make(kind, place / "image")
    with attached(kind, place / "image", point):
        yield point


def kind_of(disk: Path) -> str:
    """The name of a filesystem's kind, as stat tells it: ``ext2/ext3`` is ext4, too."""
    return run("stat", "-f", "-c", "%T", str(disk)).strip()


def make(kind: str, image: Path, *options: str) -> None:
    """Make a filesystem of ``SIZE`` bytes on a sparse file."""
    with image.open("xb") as file:
        file.truncate(SIZE)
    run(*MAKERS[kind], *options, str(image))


@contextmanager
def attached(kind: str, image: Path, point: Path) -> Iterator[None]:
    """Mount what is on ``image`` at ``point``, until it is left; its loop device goes with it."""
    point.mkdir(exist_ok=True)
    run("mount", "-t", kind, "-o", "loop", str(image), str(point))
    try:
        yield
    finally:
        run("umount", str(point))


def run(*command: str) -> str:
    """Run a command that must succeed; what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def available(point: Path) -> int:
    """Bytes that the filesystem has for its users."""
    answer = os.statvfs(point)
    return answer.f_bavail * answer.f_frsize
