"""A generation as the ledger books it, and the moves it may make.

::

               replaced, guarded
    RESIDENT ---------------------> RETIRED
     |    ^  <---------------------   |  ^
     |    |    published once more    |  |
     v    | refused                   v  | refused
    LEAVING <--------------------- (last guard went)
     |
     v  renamed away: forgotten, its bytes doomed until they are unlinked
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from weightd.model import Blob, GenerationId, Pin


class Standing(enum.Enum):
    """Where a generation stands between publication and eviction."""

    RESIDENT = "resident"
    RETIRED = "retired"
    LEAVING = "leaving"


MOVES: dict[Standing, frozenset[Standing]] = {
    Standing.RESIDENT: frozenset({Standing.RETIRED, Standing.LEAVING}),
    Standing.RETIRED: frozenset({Standing.RESIDENT, Standing.LEAVING}),
    Standing.LEAVING: frozenset({Standing.RESIDENT, Standing.RETIRED}),
}


class IllegalMove(RuntimeError):
    """The ledger was asked for something its books exclude: a bug in the caller."""


@dataclass(slots=True, eq=False)
class Generation:
    """One published copy of a key, with everything that keeps it here.

    ``readers`` counts weightd's own transfers out of it, ``links`` the
    arrivals that link to its blobs, ``in_use`` what the kernel reported.
    A ``doubted`` generation may have pins whose record was lost; a ``damaged``
    one is answered no more and waits for its guards to go.
    """

    id: GenerationId
    blobs: tuple[Blob, ...]
    last_used: float
    hits: int = 0
    standing: Standing = Standing.RESIDENT
    pins: dict[str, Pin] = field(default_factory=dict)
    readers: int = 0
    links: int = 0
    in_use: bool = False
    doubted: bool = False
    damaged: bool = False
    bytes: int = field(init=False)
    """What its blobs occupy, shared ones included, in filesystem blocks."""

    def __post_init__(self) -> None:
        self.rebind(self.blobs)

    def rebind(self, blobs: tuple[Blob, ...]) -> None:
        """Correct the blobs to what the files turned out to be; each is booked once."""
        self.blobs = tuple(dict.fromkeys(blobs))
        self.bytes = sum(blob.bytes for blob in self.blobs)

    @property
    def guarded(self) -> bool:
        """Whether anything keeps this generation from being evicted."""
        return bool(self.pins or self.readers or self.links or self.in_use or self.doubted)

    def move(self, standing: Standing) -> None:
        """Take a legal step.  Raises IllegalMove, changing nothing, for any other."""
        if standing not in MOVES[self.standing]:
            raise IllegalMove(f"{self.id}: {self.standing.value} -> {standing.value}")
        if standing is Standing.LEAVING and self.guarded:
            raise IllegalMove(f"{self.id}: guarded, cannot leave")
        self.standing = standing
