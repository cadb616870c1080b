"""Bytes from one file to another by the kernel, shared between the two where it can."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

_FICLONE: Final = 0x40049409

_UNSHARED: Final = frozenset(
    {
        *(errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS),
        *(errno.EPERM, errno.ETXTBSY),
    }
)
"""What the kernel says where two files cannot have blocks in common."""

# All else is answered by reading and writing, which tells whose fault it was.
_TELLING: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NotCopied(Exception):
    """The kernel does not copy between these two files."""


def share(source: int, target: int) -> None:
    """Have a new file consist of the blocks of another.

    Raises NotCopied where that cannot be, and says why; OSError for a disk that fails.
    """
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _UNSHARED:
            raise
        raise NotCopied(os.strerror(error.errno)) from None


def copy_all(source: int, at: int, target: int, offset: int, size: int) -> None:
    """Copy ``size`` bytes from ``at`` in ``source`` to ``offset`` in ``target``.

    A filesystem that can share blocks does (btrfs, xfs); others copy without a
    way through this process.  Raises NotCopied, and OSError for a full disk.
    """
    while size:
        try:
            count = os.copy_file_range(source, target, size, at, offset)
        except OSError as error:
            if error.errno in _TELLING:
                raise
            raise NotCopied(os.strerror(error.errno or 0)) from None
        if count == 0:
            # Also where a filesystem makes its files as they are read.
            raise NotCopied("it ended")
        at, offset, size = at + count, offset + count, size - count
