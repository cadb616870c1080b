"""The blocks of a file that is being written, taken a window ahead where its length is known.

A filesystem that does not know what is to come guesses: xfs takes up to twice
what was written, for as long as a file grows, out of what is to stay free for
others.  Told, it takes just that.  A window at a time, so that what is counted
and what the disk shows never differ by more.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from weightd.store import libc
from weightd.units import round_up

WINDOW: Final = 16 << 20

# The length that readers see still grows with what is written.
_KEEP_SIZE: Final = 1

_NOT_OFFERED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})


class Blocks:
    """The blocks that one file has taken by now, as it is written from its start."""

    def __init__(self, descriptor: int, block: int, length: int | None) -> None:
        """``length`` is what the file will have, None where nobody knows."""
        self._descriptor = descriptor
        self._block = block
        self._length = length
        self._taken = 0

    def missing(self, end: int) -> int:
        """By how many bytes of blocks the file grows when it is written up to ``end``."""
        return max(0, round_up(end, self._block) - round_up(self._taken, self._block))

    def cover(self, end: int) -> int:
        """Have blocks for the bytes before ``end``; by how many bytes of blocks that grew.

        Where they are not taken here, the write that follows takes them.
        Raises OSError, ENOSPC above all.
        """
        if end <= self._taken:
            return 0
        before, self._taken = self._taken, end
        if self._length is not None:
            upto = min(self._length, max(end, before + WINDOW))
            if _allocate(self._descriptor, before, upto - before):
                self._taken = upto
            else:
                self._length = None
        return round_up(self._taken, self._block) - round_up(before, self._block)


def exactly(descriptor: int, length: int, block: int) -> None:
    """Have a file take the blocks of its length, no hole left and nothing beyond its end.

    As far as the filesystem does that.  Raises OSError, ENOSPC above all.
    """
    held, whole = os.fstat(descriptor).st_blocks * 512, round_up(length, block)
    if held < whole:
        _allocate(descriptor, 0, length)
    elif held > whole:
        os.ftruncate(descriptor, length)


def _allocate(descriptor: int, offset: int, size: int) -> bool:
    """Take the blocks of a range; False where the filesystem does not offer that."""
    arguments = (ctypes.c_int(_KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(size))
    try:
        return libc.call("fallocate", ctypes.c_int(descriptor), *arguments)
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return False
        raise
