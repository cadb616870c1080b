"""A disk whose far end goes away and comes back: a loop device on a file that is cut."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.filesystems.disks import MB, SIZE, run

_FIBMAP: Final = 1


class Backing:
    """The file behind a loop device that is mounted at ``point``.

    What is beyond the cut neither reads nor takes anything.
    """

    def __init__(self, image: Path, point: Path) -> None:
        self._image = image
        self._point = point
        self._beyond: dict[int, bytes] = {}

    def cut(self, offset: int) -> None:
        """Take away all that is at ``offset`` and beyond, at one instant."""
        with self._still(), self._image.open("r+b") as file:
            file.seek(offset)
            while data := file.read(MB):
                if any(data):
                    self._beyond[file.tell() - len(data)] = data
            file.truncate(offset)
            self._tell()

    def grow_back(self) -> None:
        """Give all of it back, as it was."""
        with self._image.open("r+b") as file:
            file.truncate(SIZE)
            for offset, data in self._beyond.items():
                file.seek(offset)
                file.write(data)
        self._beyond.clear()
        self._tell()

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Nothing is written meanwhile, which would be in no copy of what is taken away."""
        run("fsfreeze", "--freeze", str(self._point))
        try:
            yield
        finally:
            run("fsfreeze", "--unfreeze", str(self._point))

    def _tell(self) -> None:
        """Have the device be as long as the file: else the kernel makes that longer by a write."""
        listed = ("losetup", "--noheadings", "--output", "NAME", "--associated")
        for device in run(*listed, str(self._image)).split():
            run("losetup", "--set-capacity", device)


def place_of(file: Path) -> int:
    """Where on its disk a file begins, in bytes."""
    with file.open("rb") as opened:
        block = os.fstatvfs(opened.fileno()).f_bsize
        (number,) = struct.unpack("i", fcntl.ioctl(opened, _FIBMAP, struct.pack("i", 0)))
    assert number != 0, file
    return int(number) * block


def forget(file: Path) -> None:
    """Have the kernel read a file from its disk again."""
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
