"""Paced write-back: dirty pages go to the disk while a file arrives, a window at a time.

Left to the kernel, tens of gigabytes of dirty pages gather and the flush at
the end, with every other write on the node, waits behind them.  Here at most
two windows of one transfer are dirty: one being written, one being filled.
``fsync`` at the end still does the promising; this only spreads its work.
"""

from __future__ import annotations

import ctypes
import errno
from typing import Final

from weightd.store import libc

WINDOW: Final = 32 << 20

_WAIT_BEFORE: Final = 1
_WRITE: Final = 2
_WAIT_AFTER: Final = 4

# What write-back itself met; any other error means that it is not offered here.
_TELLING: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})


class WriteBack:
    """The write-back of one file being written from its start, without a gap."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._started = 0
        self._offered = True

    def reached(self, offset: int) -> None:
        """Say that the file is written up to ``offset``.  Raises OSError for a failing disk."""
        while self._offered and offset - self._started >= WINDOW:
            self._range(self._started, _WRITE)
            if self._started >= WINDOW:
                self._range(self._started - WINDOW, _WAIT_BEFORE | _WRITE | _WAIT_AFTER)
            self._started += WINDOW

    def _range(self, offset: int, flags: int) -> None:
        # Absent from some C libraries, and refused by some filesystems; fsync does it all then.
        arguments = (ctypes.c_int64(offset), ctypes.c_int64(WINDOW), ctypes.c_uint(flags))
        try:
            offered = libc.call("sync_file_range", ctypes.c_int(self._descriptor), *arguments)
        except OSError as error:
            if error.errno in _TELLING:
                raise
            offered = False
        self._offered = offered
