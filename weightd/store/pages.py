"""What of a file is in memory: counted as the kernel has it, and let go.

A container's memory limit counts the pages of what it writes and reads.  So an
arrival that nobody waits for leaves none behind, and one that somebody waits
for leaves what came meanwhile: see `Awaited`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from weightd.store import libc

Awaited: TypeAlias = Callable[[], bool]
"""Whether somebody waits for what arrives, at this moment, and is about to map it.

Asked by the threads that write, each time that pages could go.
"""

_LOWEST_BIT: Final = bytes(number & 1 for number in range(256))
"""The others of an answer of mincore's are the kernel's own."""


def unawaited() -> bool:
    """An `Awaited` for what nobody waits for."""
    return False


def forget(descriptor: int, start: int = 0, stop: int | None = None) -> None:
    """Have the kernel let go of what is in memory of a file, from ``start`` to ``stop``.

    What is dirty, mapped or on a filesystem of memory stays, and so does a page that is only
    half in the stretch.  Without ``stop`` it is to the file's end.
    """
    # Advice, which a container's filter may refuse: the pages go under pressure then.
    with suppress(OSError):
        size = 0 if stop is None else stop - start
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)


def cached(descriptor: int, start: int, size: int) -> int:
    """How many bytes of a stretch of a file are in memory, by whole pages; it has them all.

    ``start`` is a page's.  Raises OSError, and ValueError where the file ends before.
    """
    pages = -(-size // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    # A copy that nobody writes to: Python gives the address of no mapping that is read-only.
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=start) as mapping:
        first = ctypes.c_char.from_buffer(mapping)
        try:
            address = ctypes.c_void_p(ctypes.addressof(first))
            libc.call("mincore", address, ctypes.c_size_t(size), found)
        finally:
            # The mapping cannot go while anything refers to it.
            del first
    resident = bytes(found).translate(_LOWEST_BIT).count(1)
    beyond = pages * mmap.PAGESIZE - size if found[-1] & 1 else 0
    return resident * mmap.PAGESIZE - beyond
