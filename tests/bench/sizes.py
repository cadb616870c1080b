"""How much of everything a run takes, and how that shrinks to the disk that is there."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30

_SPARE: Final = 2 * GIB
"""Bytes of the disk that a run leaves to others."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts, and sizes in bytes; ``warm`` is the memory that is touched before the run."""

    rounds: int
    requests: int
    pins: int
    clients: int
    models: int
    files: int
    put: int
    stream: int
    unlink: int
    warm: int

    @property
    def disk(self) -> int:
        """The most bytes on disk at one time, in whichever scenario needs most."""
        return max(self.stream + self.unlink, 3 * self.put)

    def within(self, free: int) -> Sizes:
        """The same, with large files shrunk alike until they fit ``free`` bytes of disk."""
        room = max(free - _SPARE, free // 4)
        if self.disk <= room:
            return self
        share = room / self.disk
        smaller = {name: int(getattr(self, name) * share) for name in ("put", "stream", "unlink")}
        return replace(self, **smaller)

    def words(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


FULL: Final = Sizes(
    rounds=5,
    requests=3000,
    pins=500,
    clients=16,
    models=10_000,
    files=2,
    put=GIB,
    stream=2 * GIB,
    unlink=8 * GIB,
    warm=6 * GIB,
)
QUICK: Final = Sizes(
    rounds=3,
    requests=800,
    pins=150,
    clients=16,
    models=1000,
    files=2,
    put=128 * MIB,
    stream=256 * MIB,
    unlink=512 * MIB,
    warm=GIB,
)
