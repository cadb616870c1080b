"""A filesystem in user space that shows a directory, and fails what a file beside it names.

Run as ``python passthrough.py DIRECTORY MOUNT FAULTS``: the file FAULTS has a
line ``OPERATION ERRNO`` for each operation that is to fail from now on.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import mfusepy


def served(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Do the operation below the directory shown, or fail it as it is asked for."""

    @wraps(operation)
    def serve(filesystem: Passthrough, path: str, *args: Any) -> Any:
        filesystem.meet(operation.__name__)
        return operation(filesystem, filesystem.place + path, *args)

    return serve


class Passthrough(mfusepy.Operations):  # type: ignore[misc]  # it has no types
    """Every operation on a path below ``place``, or the error that is asked for."""

    use_ns = True

    def __init__(self, place: str, faults: Path) -> None:
        self.place = place
        self._faults = faults

    def meet(self, operation: str) -> None:
        """Raise the error that the operation is to fail with, if there is one."""
        for line in self._faults.read_text().splitlines():
            failing, _, error = line.partition(" ")
            if operation == failing:
                raise mfusepy.FuseOSError(getattr(errno, error))

    @served
    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.lstat(path) if fh is None else os.fstat(fh)
        names = ("mode", "nlink", "size", "uid", "gid", "blocks", "ino", "rdev")
        found = {f"st_{name}": getattr(status, f"st_{name}") for name in names}
        times = {f"st_{name}": getattr(status, f"st_{name}_ns") for name in ("atime", "ctime")}
        return found | times | {"st_mtime": status.st_mtime_ns}

    @served
    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        # An entry without an inode is taken for none.
        inode = os.lstat(path).st_ino
        found = [(".", {"st_ino": inode}, 0), ("..", {"st_ino": inode}, 0)]
        with os.scandir(path) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                told = {"st_ino": status.st_ino, "st_mode": status.st_mode}
                found.append((entry.name, told, 0))
        return found

    @served
    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(path, mode)
        return 0

    @served
    def rmdir(self, path: str) -> int:
        os.rmdir(path)
        return 0

    @served
    def unlink(self, path: str) -> int:
        os.unlink(path)
        return 0

    @served
    def rename(self, old: str, new: str) -> int:
        os.rename(old, self.place + new)
        return 0

    @served
    def chmod(self, path: str, mode: int) -> int:
        os.chmod(path, mode)
        return 0

    @served
    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(path, uid, gid)
        return 0

    @served
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(path, ns=times or (time.time_ns(), time.time_ns()))
        return 0

    @served
    def statfs(self, path: str) -> dict[str, Any]:
        answer = os.statvfs(path)
        names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize")
        return {f"f_{name}": getattr(answer, f"f_{name}") for name in (*names, "namemax")}

    @served
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    @served
    def open(self, path: str, flags: int) -> int:
        # The kernel reads pages of what was opened for writing alone.
        return os.open(path, flags & ~os.O_WRONLY | (os.O_RDWR if flags & os.O_WRONLY else 0))

    @served
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    @served
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    @served
    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(path if fh is None else fh, length)
        return 0

    @served
    def flush(self, path: str, fh: int) -> int:
        return 0

    @served
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    @served
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    @served
    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0


if __name__ == "__main__":
    place, mount, faults = sys.argv[1:]
    mfusepy.FUSE(
        Passthrough(place, Path(faults)), mount, foreground=True, nothreads=True,
        default_permissions=True, use_ino=True,
    )  # fmt: skip
