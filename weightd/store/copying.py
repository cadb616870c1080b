"""Bytes from one file to another by the kernel, shared between the two where it can."""

from __future__ import annotations

import errno
import os
from typing import Final

# All else is answered by reading and writing, which tells whose fault it was.
_TELLING: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NotCopied(Exception):
    """The kernel does not copy between these two files."""


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
