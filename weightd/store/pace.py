"""Paced write-back: dirty pages go to the disk while a file arrives, a window at a time.

Left to the kernel, tens of gigabytes of dirty pages gather and the flush at
the end, with every other write on the node, waits behind them.  Here at most
two windows of one transfer are dirty: one being written, one being filled.
``fsync`` at the end still does the promising; this only spreads its work.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

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
        call = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
        if call is None:
            self._offered = False
            return
        arguments = (ctypes.c_int64(offset), ctypes.c_int64(WINDOW), ctypes.c_uint(flags))
        if call(ctypes.c_int(self._descriptor), *arguments) == 0:
            return
        number = ctypes.get_errno()
        if number in _TELLING:
            raise OSError(number, os.strerror(number))
        self._offered = False
