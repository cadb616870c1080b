"""Paced write-back: dirty pages go to the disk while a file arrives, a window at a time.

Left to the kernel, tens of gigabytes of dirty pages gather and the flush at
the end, with every other write on the node, waits behind them.  Here at most
two windows of one transfer are dirty: one being written, one being filled.
``fsync`` at the end still does the promising; this only spreads its work.

What is on the disk and needed no more leaves memory on the way, a window at a
time, so that a large arrival takes no more of it than a small one.
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from weightd.store import libc, pages
from weightd.store.spans import Spans

WINDOW: Final = 32 << 20

_TOGETHER: Final = 2 << 20
"""The most that the kernel has in memory as one, aligned: of which half would stay, all does."""

_WRITE: Final = 2
_WAIT: Final = 1 | 2 | 4

# What write-back itself met; any other error means that it is not offered here.
_TELLING: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})


Unneeded: TypeAlias = Callable[[], int]
"""Up to where of a file nobody needs the pages: what is hashed, or 0 while somebody waits for it.

Asked for each window once, by the thread that filled it.
"""


def keeps_all() -> int:
    """An `Unneeded` of a file all of whose pages stay."""
    return 0


class _Range:
    """Write-back of ranges of one file, as far as it is offered here."""

    def __init__(self, descriptor: int, unneeded: Unneeded = keeps_all) -> None:
        """What ``unneeded`` says goes from memory once it is written back."""
        self._descriptor = descriptor
        self._unneeded = unneeded
        self._offered = True

    def _range(self, offset: int, size: int, flags: int) -> None:
        # Absent from some C libraries, and refused by some filesystems; fsync does it all then.
        arguments = (ctypes.c_int64(offset), ctypes.c_int64(size), ctypes.c_uint(flags))
        try:
            offered = libc.call("sync_file_range", ctypes.c_int(self._descriptor), *arguments)
        except OSError as error:
            if error.errno in _TELLING:
                raise
            offered = False
        self._offered = offered


class WriteBack(_Range):
    """The write-back of one file being written from its start, without a gap."""

    def __init__(self, descriptor: int, unneeded: Unneeded = keeps_all) -> None:
        super().__init__(descriptor, unneeded)
        self._started = 0
        self._clean = 0
        self._forgotten = 0

    def reached(self, offset: int) -> None:
        """Say that the file is written up to ``offset``.  Raises OSError for a failing disk."""
        while self._offered and offset - self._started >= WINDOW:
            self._range(self._started, WINDOW, _WRITE)
            if self._started >= WINDOW:
                self._range(self._clean, WINDOW, _WAIT)
                self._clean = self._started
                self._forget()
            self._started += WINDOW

    def _forget(self) -> None:
        stop = min(self._clean, self._unneeded()) // _TOGETHER * _TOGETHER
        if stop > self._forgotten:
            pages.forget(self._descriptor, self._forgotten, stop)
            self._forgotten = stop


class ScatteredWriteBack(_Range):
    """The write-back of one file being written anywhere, by several threads.

    A window is here what was written since the last one, wherever that is.
    """

    def __init__(self, descriptor: int, unneeded: Unneeded = keeps_all) -> None:
        super().__init__(descriptor, unneeded)
        self._changing = threading.Lock()
        self._filling = Spans()
        self._started: list[tuple[int, int]] = []
        self._clean = Spans()
        """On the disk, and maybe in memory as well."""

    def wrote(self, start: int, stop: int) -> None:
        """Say that a span was written.  Raises OSError for a failing disk.

        Whoever fills a window waits for the one before it; the others go on.
        """
        with self._changing:
            self._filling.add(start, stop)
            if self._filling.total < WINDOW or not self._offered:
                return
            full, before = list(self._filling), self._started
            self._filling.clear()
            self._started = full
        for offset, end in full:
            self._range(offset, end - offset, _WRITE)
        for offset, end in before:
            self._range(offset, end - offset, _WAIT)
        self._forget(before)

    def _forget(self, clean: list[tuple[int, int]]) -> None:
        """Take note of what has become clean, and let go of what nobody needs of all that is."""
        unneeded = self._unneeded()
        with self._changing:
            for span in clean:
                self._clean.add(*span)
            ends = [(start, min(stop, unneeded)) for start, stop in self._clean]
            whole = [(start, end // _TOGETHER * _TOGETHER) for start, end in ends]
            going = [(start, stop) for start, stop in whole if start < stop]
            for span in going:
                self._clean.remove(*span)
        for span in going:
            pages.forget(self._descriptor, *span)

    def rest(self) -> None:
        """Begin with what is left; nothing waits.  Raises OSError for a failing disk."""
        with self._changing:
            left = list(self._filling)
            self._filling.clear()
        for offset, end in left if self._offered else ():
            self._range(offset, end - offset, _WRITE)


def begin(descriptor: int, size: int) -> None:
    """Have a whole file written back, and wait for nothing.  Raises OSError for a failing disk."""
    whole = ScatteredWriteBack(descriptor)
    whole.wrote(0, size)
    whole.rest()
