"""What the ledger hands out: promises, victims, successions and sums."""

from __future__ import annotations

from dataclasses import dataclass

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
class Reservation:
    """Bytes promised to one arrival.

    ``granted`` of them may be written now; ``written`` of them have been, as
    far as the writer has told.  ``refusal`` is set when the budget or the disk
    shrank meanwhile so that it fits no more: whoever brings it in raises that,
    and releases it.
    """

    key: Key
    bytes: int
    victims: tuple[Doomed, ...] = ()
    links: tuple[Generation, ...] = ()
    granted: int = 0
    written: int = 0
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
    """The sums, in bytes of filesystem blocks, and the counts."""

    capacity: int
    resident: int
    retired: int
    reserved: int
    written: int
    doomed: int
    pinned: int
    evictable: int
    models: int
    retired_models: int
    arrivals: int
    pins: int

    @property
    def used(self) -> int:
        """What is on disk: models, what arrivals have written, what is not yet given back."""
        return self.resident + self.retired + self.written + self.doomed

    @property
    def over_budget(self) -> int:
        """By how much what is here and promised passes the budget, which has shrunk."""
        return max(0, self.resident + self.retired + self.reserved - self.capacity)

    @property
    def free(self) -> int:
        """What is promised to nobody."""
        return max(0, self.capacity - self.resident - self.retired - self.reserved)
