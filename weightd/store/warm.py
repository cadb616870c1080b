"""Reading a published model into the page cache, and counting how much of it is there.

A file is open, or mapped, for one step at a time, under the lock that looks and
seizures take, as in `verify`: an eviction that names the model waits for one
step, finds nobody who uses it, and goes ahead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from weightd.model import FileEntry, Manifest
from weightd.store import faults, layout, pages, tree
from weightd.store.root import Root

STEP_BYTES: Final = 8 << 20
"""Read at once: what an eviction waits for, and enough for the kernel to read ahead in."""

COUNT_BYTES: Final = 1 << 30
"""Looked at at once: a step of 256 KiB of answers."""

_BUFFER_BYTES: Final = 256 << 10
"""What stays in a core's own cache, since nobody wants these bytes here."""


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
    """How many bytes of a stretch are in memory.  Raises OSError, and _Gone for a shorter file."""
    if os.fstat(descriptor).st_size < at + size:
        raise _Gone
    return pages.cached(descriptor, at, size)
