"""How much of everything a run takes, and how that shrinks to the disk that is there."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30

_SPARE: Final = 2 * GIB
"""Bytes of the disk that a run leaves to others."""

_FILES: Final = ("put", "member", "content", "hands", "stream", "unlink", "fetch", "shard", "far")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts, and sizes in bytes; ``warm`` is the memory that is touched before the run."""

    rounds: int
    requests: int
    pins: int
    clients: int
    models: int
    files: int
    starts: int
    members: int
    scale: int
    held: int
    connections: int
    puts: int
    put: int
    member: int
    content: int
    hands: int
    stream: int
    unlink: int
    fetch: int
    shards: int
    shard: int
    far: int
    warm: int

    @property
    def disk(self) -> int:
        """The most bytes on disk at one time, in whichever scenario needs most."""
        # On two servers, and brought here, which takes twice its size for a moment.
        fetched = 2 * (self.fetch + self.shards * self.shard + self.far) + 2 * self.fetch
        tar = 3 * self.members * self.member
        most = max(self.stream + self.unlink, 3 * self.put, tar, self.content, 3 * self.hands)
        return max(most, fetched)

    def within(self, free: int) -> Sizes:
        """The same, with large files shrunk alike until they fit ``free`` bytes of disk."""
        room = max(free - _SPARE, free // 4)
        if self.disk <= room:
            return self
        share = room / self.disk
        smaller = {name: int(getattr(self, name) * share) for name in _FILES}
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
    starts=40,
    members=40,
    scale=10_000,
    held=5000,
    connections=300,
    puts=10_000,
    put=GIB,
    member=50_000_000,
    content=GIB,
    hands=2 * GIB,
    stream=2 * GIB,
    unlink=8 * GIB,
    fetch=2 * GIB,
    shards=40,
    shard=50_000_000,
    far=256 * MIB,
    warm=6 * GIB,
)
QUICK: Final = Sizes(
    rounds=2,
    requests=300,
    pins=100,
    clients=16,
    models=300,
    files=2,
    starts=6,
    members=4,
    scale=300,
    held=300,
    connections=100,
    puts=250,
    put=32 * MIB,
    member=8 * MIB,
    content=64 * MIB,
    hands=64 * MIB,
    stream=128 * MIB,
    unlink=128 * MIB,
    fetch=64 * MIB,
    shards=2,
    shard=8 * MIB,
    far=4 * MIB,
    warm=GIB,
)
