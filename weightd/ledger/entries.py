"""What the ledger hands out: promises, victims, successions and sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from weightd.errors import Blocked, DiskFull, TooLarge
from weightd.ledger.generations import Generation, Standing
from weightd.model import GenerationId, Key, Pin


@dataclass(slots=True, eq=False)
class Remains:
    """Bytes that left the books and have not yet left the disk."""

    bytes: int


@dataclass(slots=True, eq=False)
class Doomed(Remains):
    """What is left of an evicted generation; ``bytes`` of it were in use by no other.

    Until ``settled`` the victim is only named and can still be refused;
    ``superseded`` says that its key got another generation meanwhile.
    """

    generation: Generation
    was: Standing
    settled: bool = False
    superseded: bool = False
    freed: int = 0

    @property
    def id(self) -> GenerationId:
        return self.generation.id


@dataclass(slots=True, eq=False)
class Parked:
    """Bytes of an arrival that is not under way: promised and on disk, and the first to go."""

    key: Key
    bytes: int


class Dropped(NamedTuple):
    """What was parked and had to go; ``remains`` are its bytes until they have left the disk."""

    parked: Parked
    remains: Remains


@dataclass(slots=True, eq=False)
class Reservation:
    """Bytes promised to one arrival.

    ``granted`` of them may be written now; ``written`` of them have been, as
    far as the writer has told.  ``dropped`` goes for it besides the ``victims``;
    see `Ledger.keep_parked`.  ``present`` are on the disk already, as somebody
    else's, and become ours by the commit.  ``refusal`` is set when the budget or
    the disk shrank meanwhile so that it fits no more: whoever brings it in
    raises that, and releases it.
    """

    key: Key
    bytes: int
    victims: tuple[Doomed, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    links: tuple[Generation, ...] = ()
    granted: int = 0
    written: int = 0
    present: int = 0
    open: bool = True
    refusal: TooLarge | Blocked | DiskFull | None = None


@dataclass(frozen=True, slots=True)
class Succession:
    """What a publication did to its predecessor: retired it, doomed it, or neither.

    ``left`` are generations retired before, which only the arrival's links kept.
    """

    generation: Generation
    retired: Generation | None = None
    replaced: Doomed | None = None
    left: tuple[Doomed, ...] = ()


@dataclass(frozen=True, slots=True)
class Pinning:
    """A pin taken or renewed; ``previous`` is the pin as it was before, for taking it back."""

    generation: Generation
    pin: Pin
    previous: Pin | None

    @property
    def created(self) -> bool:
        return self.previous is None


@dataclass(frozen=True, slots=True)
class Usage:
    """The sums, in bytes of filesystem blocks, and the counts.

    ``parked`` is in none of the other sums but ``evictable``.
    """

    capacity: int
    resident: int
    retired: int
    reserved: int
    written: int
    parked: int
    doomed: int
    pinned: int
    evictable: int
    models: int
    retired_models: int
    arrivals: int
    pins: int

    @property
    def used(self) -> int:
        """What is on disk: models, what arrivals wrote or left, what is not yet given back."""
        return self.resident + self.retired + self.written + self.parked + self.doomed

    @property
    def over_budget(self) -> int:
        """By how much what is here and promised passes the budget, which has shrunk."""
        return max(0, self._promised - self.capacity)

    @property
    def free(self) -> int:
        """What is promised to nobody."""
        return max(0, self.capacity - self._promised)

    @property
    def _promised(self) -> int:
        return self.resident + self.retired + self.reserved + self.parked
