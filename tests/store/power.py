"""What a power loss may leave of a directory: all that was flushed, and of the rest anything.

`Disk` watches ``fsync`` and ``fdatasync``, and can lay out at any instant what a
disk might hold if the power went then: of each file every sector as it was
flushed last or as it is now, of the names either those that were flushed or
those there are.  A filesystem that orders its own journal leaves less to chance.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

SECTOR = 512


class Disk:
    """The disk below ``top``, which must not exist yet; watches until the test is over."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before_flush: Callable[[], None] | None = None
        self._top = top
        self._files: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        # Nothing else may get the inode of what was unlinked.
        self._kept: dict[int, int] = {}
        self._fsync, self._fdatasync = os.fsync, os.fdatasync
        monkeypatch.setattr(os, "fsync", self._flush)
        monkeypatch.setattr(os, "fdatasync", self._flush)

    def close(self) -> None:
        for descriptor in self._kept.values():
            os.close(descriptor)

    def _flush(self, descriptor: int) -> None:
        if self.before_flush is not None:
            self.before_flush()
        status = os.fstat(descriptor)
        if status.st_ino not in self._kept:
            self._kept[status.st_ino] = os.dup(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = _listing(descriptor)
        else:
            self._files[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def lose_power(self, image: Path, chance: random.Random) -> None:
        """Lay out below ``image`` what might be left."""
        paths = {path.lstat().st_ino: path for path in self._top.rglob("*")}
        names = self._names if chance.random() < 0.5 else None
        self._laid_out: dict[int, Path] = {}
        self._lay_out(self._top.stat().st_ino, image, paths, names, chance)

    def _lay_out(
        self,
        directory: int,
        image: Path,
        paths: dict[int, Path],
        names: dict[int, dict[str, int]] | None,
        chance: random.Random,
    ) -> None:
        image.mkdir()
        if names is not None:
            listing = names.get(directory, {})
        else:
            place = paths.get(directory, self._top)
            listing = {one.name: one.lstat().st_ino for one in place.iterdir()}
        # A rename is whole or not at all: models/ is flushed before what a model came from.
        for name, inode in sorted(listing.items(), reverse=True):
            if inode in self._laid_out and self._laid_out[inode].is_dir():
                continue
            if inode in self._names or (inode in paths and paths[inode].is_dir()):
                self._laid_out[inode] = image / name
                self._lay_out(inode, image / name, paths, names, chance)
            elif inode in self._laid_out:
                os.link(self._laid_out[inode], image / name)
            else:
                (image / name).write_bytes(self._content(inode, paths, chance))
                self._laid_out[inode] = image / name

    def _content(self, inode: int, paths: dict[int, Path], chance: random.Random) -> bytes:
        flushed = chance.choice([0.0, 0.5, 1.0])
        safe = self._files.get(inode, b"")
        if inode in paths:
            now = paths[inode].read_bytes()
        elif inode in self._kept:
            descriptor = self._kept[inode]
            now = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        else:
            now = safe
        size = len(chance.choice([safe, now, now]))
        # The pattern stands for whatever was on the disk there before.
        safe, now = safe.ljust(size, b"\xa5")[:size], now.ljust(size, b"\xa5")[:size]
        return b"".join(
            (safe if chance.random() < flushed else now)[start : start + SECTOR]
            for start in range(0, size, SECTOR)
        )


def _listing(descriptor: int) -> dict[str, int]:
    with os.scandir(descriptor) as entries:
        return {entry.name: entry.inode() for entry in entries}
