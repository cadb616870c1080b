"""Where an ingest's bytes come from, and how large a piece is taken at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

# One reused buffer where a file is read; 256 KiB to 1 MiB measured alike, larger ones slower.
BUFFER_BYTES: Final = 512 << 10

Claim: TypeAlias = Callable[[int], None]
"""Called before a file's blocks grow by so many bytes; what it raises ends the ingest."""

Wrote: TypeAlias = Callable[[int], None]
"""Called after a file's blocks grew by so many bytes."""


def untold(size: int) -> None:
    """A `Wrote` for whom nobody counts."""


class Source(Protocol):
    """Bytes that arrive, read by one thread that may block."""

    def readinto(self, buffer: memoryview) -> int:
        """Put at least one byte into ``buffer``; 0 at the end.

        Raises errors of ours: IncompleteBody, Stalled.
        """
        ...


def fill(source: Source, view: memoryview) -> int:
    """Read until ``view`` is full or the source ends; the bytes read."""
    filled = 0
    while filled < len(view) and (count := source.readinto(view[filled:])):
        filled += count
    return filled
