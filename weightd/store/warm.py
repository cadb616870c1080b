"""Reading a published model into the page cache, and counting how much of it is there.

A file is open, or mapped, for one step at a time, under the lock that looks and
seizures take, as in `verify`: an eviction that names the model waits for one
step, finds nobody who uses it, and goes ahead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from weightd.model import FileEntry, Manifest
from weightd.store import faults, layout, libc, tree
from weightd.store.root import Root

STEP_BYTES: Final = 8 << 20
"""Read at once: what an eviction waits for, and enough for the kernel to read ahead in."""

COUNT_BYTES: Final = 1 << 30
"""Looked at at once: a step of 256 KiB of answers."""

_BUFFER_BYTES: Final = 256 << 10
"""What stays in a core's own cache, since nobody wants these bytes here."""


_LOWEST_BIT: Final = bytes(number & 1 for number in range(256))
"""The others of an answer of mincore's are the kernel's own."""


class _Gone(Exception):
    """A file is not there, or not as it was published."""


@dataclass(slots=True)
class Warming:
    """How far one is, for any thread to see.  Set ``stopping`` and it ends after the step."""

    done: int = 0
    stopping: bool = False


def warm(root: Root, manifest: Manifest, lock: threading.Lock, warming: Warming) -> int | None:
    """See `Store.warm`."""
    buffer, cached = memoryview(bytearray(_BUFFER_BYTES)), 0
    try:
        with faults.reading(f"reading of {manifest.key}"):
            for entry, at in _steps(manifest, STEP_BYTES):
                if warming.stopping:
                    return None
                with lock, _opened(root, manifest, entry) as descriptor:
                    warming.done += _read(descriptor, at, entry, buffer)
            # Afterwards, since what came last may have pushed out what came first.
            for entry, at in _steps(manifest, COUNT_BYTES):
                if warming.stopping:
                    return None
                with lock, _opened(root, manifest, entry) as descriptor:
                    cached += _cached(descriptor, at, min(COUNT_BYTES, entry.bytes - at))
    except _Gone:
        raise FileNotFoundError(str(manifest.key)) from None
    return cached


def _steps(manifest: Manifest, size: int) -> Iterator[tuple[FileEntry, int]]:
    return ((entry, at) for entry in manifest.files for at in range(0, entry.bytes, size))


@contextmanager
def _opened(root: Root, manifest: Manifest, entry: FileEntry) -> Iterator[int]:
    """A file of a model.  Raises _Gone."""
    model = f"{layout.generation_name(manifest.id)}/{manifest.key.last_segment}"
    descriptor = tree.open_regular(root.models, f"{model}/{entry.path}")
    if descriptor is None:
        raise _Gone
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, at: int, entry: FileEntry, buffer: memoryview) -> int:
    """Read one step; how much it was.  Raises OSError, and _Gone for a shorter file."""
    end = min(entry.bytes, at + STEP_BYTES)
    os.posix_fadvise(descriptor, at, end - at, os.POSIX_FADV_WILLNEED)
    reached = at
    while reached < end:
        count = os.preadv(descriptor, [buffer[: end - reached]], reached)
        if not count:
            raise _Gone
        reached += count
    return end - at


def _cached(descriptor: int, at: int, size: int) -> int:
    """How many bytes of a stretch are in memory, by whole pages.  Raises OSError."""
    if os.fstat(descriptor).st_size < at + size:
        # A page behind its end would be no page of it.
        raise _Gone
    pages = -(-size // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    # A copy that nobody writes to: Python gives the address of no mapping that is read-only.
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=at) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        try:
            address = ctypes.c_void_p(ctypes.addressof(start))
            libc.call("mincore", address, ctypes.c_size_t(size), found)
        finally:
            # The mapping cannot go while anything refers to it.
            del start
    resident = bytes(found).translate(_LOWEST_BIT).count(1)
    beyond = pages * mmap.PAGESIZE - size if found[-1] & 1 else 0
    return resident * mmap.PAGESIZE - beyond
