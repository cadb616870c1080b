"""Where a run keeps its files, and that nothing of them stays."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CHUNK: Final = 1 << 20
_MEMORY: Final = Path("/dev/shm")
_MEMORY_LEAST: Final = 1 << 30
_WARM_SHARE: Final = 0.5
"""Of the memory that is available, the most that is touched before a run."""


@contextmanager
def place(parent: Path) -> Iterator[Path]:
    """A new directory below ``parent``, removed with all that is in it."""
    path = Path(tempfile.mkdtemp(prefix="weightd-bench-", dir=parent))
    try:
        yield path
    finally:
        remove(path)


@contextmanager
def room(parent: Path, name: str) -> Iterator[Path]:
    """A directory for one scenario, removed at its end so that the next has the disk."""
    path = parent / name
    path.mkdir()
    try:
        yield path
    finally:
        remove(path)


@contextmanager
def room_in_memory(parent: Path, name: str) -> Iterator[Path]:
    """The same in memory, where no disk is measured; on disk where memory has no such place.

    A container may have one that is too small.
    """
    usable = filesystem(_MEMORY) == "tmpfs" and os.access(_MEMORY, os.W_OK)
    if usable and free_bytes(_MEMORY) >= _MEMORY_LEAST:
        with place(_MEMORY) as path:
            yield path
    else:
        with room(parent, name) as path:
            yield path


def remove(path: Path) -> None:
    """Remove a tree, read-only directories included."""
    for directory, _, _ in os.walk(path):
        os.chmod(directory, stat.S_IRWXU)
    shutil.rmtree(path)


def free_bytes(path: Path) -> int:
    """What the filesystem has left for this user."""
    return shutil.disk_usage(path).free


def filesystem(path: Path) -> str:
    """The type of the filesystem that ``path`` is on, as mount tells it."""
    found = ("/", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        mounted, kind = line.split()[1:3]
        if path.resolve().is_relative_to(mounted) and len(mounted) >= len(found[0]):
            found = (mounted, kind)
    return found[1]


def touch_memory(most: int) -> int:
    """Touch and free memory: a page's first use costs more than what is measured with it.

    Answers how many bytes were touched.
    """
    size = min(most, int(available_memory() * _WARM_SHARE)) // _CHUNK * _CHUNK
    if size:
        with mmap.mmap(-1, size) as memory:
            ones = b"\x01" * _CHUNK
            for _ in range(size // _CHUNK):
                memory.write(ones)
    return size


def available_memory() -> int:
    """Bytes of memory that could be had, as the kernel estimates them."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def write_random(path: Path, size: int) -> None:
    """A file of ``size`` bytes that nothing can compress or deduplicate, in the page cache."""
    with path.open("wb") as file:
        for start in range(0, size, _CHUNK):
            file.write(os.urandom(min(_CHUNK, size - start)))
        file.flush()
        os.fsync(file.fileno())
