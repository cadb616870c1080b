"""What unfinished fetches left on the disk: counted, resumable, first to go when room is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from weightd.ledger import Dropped, Ledger, Remains, Reservation
from weightd.ledger import Parked as BookedPartial
from weightd.model import Key
from weightd.store import Parked as StoredPartial


@dataclass(frozen=True, slots=True)
class Partial:
    """One unfinished model: as it stands on disk, and in the books."""

    stored: StoredPartial
    booked: BookedPartial


class Partials:
    """At most one partial per key, and those that an arrival is about to take over."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._partials: dict[Key, Partial] = {}
        self._resuming: dict[Reservation, StoredPartial] = {}
        self._aside: dict[Key, tuple[StoredPartial, Dropped]] = {}
        """What goes for an arrival once its victims are out of reach, or stays with them."""

    def __len__(self) -> int:
        return len(self._partials)

    def __iter__(self) -> Iterator[Partial]:
        return iter(list(self._partials.values()))

    def of(self, key: Key) -> Partial | None:
        """What is here of ``key``, if anything is."""
        return self._partials.get(key)

    def load(self, stored: StoredPartial) -> None:
        """Enter what a start found."""
        booked = self._ledger.load_parked(stored.key, stored.bytes)
        self._partials[stored.key] = Partial(replace(stored, note=b""), booked)

    def stored(self, key: Key) -> StoredPartial | None:
        """What the disk has of ``key``, also if it is about to go; its note may be empty."""
        if key in self._aside:
            return self._aside[key][0]
        partial = self._partials.get(key)
        return None if partial is None else partial.stored

    def noted(self, stored: StoredPartial, note: bytes) -> None:
        """Have its note at hand while a job of the key runs, or empty: it may be long."""
        key, now = stored.key, self.stored(stored.key)
        if now is None or now.id != stored.id:
            return
        now = replace(now, note=note)
        if key in self._aside:
            self._aside[key] = now, self._aside[key][1]
        else:
            self._partials[key] = Partial(now, self._partials[key].booked)

    def resume(self, key: Key, reservation: Reservation) -> None:
        """The bytes of the partial of ``key`` are the reservation's now."""
        self._resuming[reservation] = self._partials.pop(key).stored

    def taken(self, reservation: Reservation) -> StoredPartial | None:
        """What the arrival goes on from; it answers for the bytes from now on."""
        return self._resuming.pop(reservation, None)

    def returned(self, reservation: Reservation) -> bool:
        """Park again what the arrival did not come to take; whether there was such."""
        stored = self._resuming.pop(reservation, None)
        if stored is not None:
            self.park(stored, reservation)
        return stored is not None

    def park(self, stored: StoredPartial, reservation: Reservation) -> None:
        """An arrival stopped half way: its reservation ends, what it wrote stays counted."""
        self._partials[stored.key] = Partial(stored, self._ledger.park(reservation))

    def drop(self, key: Key) -> tuple[StoredPartial, Remains] | None:
        """Give up what is here of ``key``: whoever asks has it unlinked."""
        if key in self._aside:
            stored, dropped = self._aside.pop(key)
            return stored, dropped.remains
        partial = self._partials.pop(key, None)
        if partial is None:
            return None
        return partial.stored, self._ledger.drop_parked(partial.booked)

    def set_aside(self, dropped: Iterable[Dropped]) -> None:
        """The ledger gave these up for an arrival whose victims may still be refused."""
        for one in dropped:
            self._aside[one.parked.key] = self._partials.pop(one.parked.key).stored, one

    def take(self, dropped: Dropped) -> StoredPartial | None:
        """What the ledger gave up, now to be unlinked; None when it was dropped meanwhile."""
        key = dropped.parked.key
        if key in self._aside:
            return self._aside.pop(key)[0]
        partial = self._partials.get(key)
        if partial is None or partial.booked is not dropped.parked:
            return None
        del self._partials[key]
        return partial.stored

    def keep(self, dropped: Iterable[Dropped]) -> None:
        """Put what was set aside back into the books; see `Ledger.keep_parked`."""
        kept = [one for one in dropped if one.parked.key in self._aside]
        self._ledger.keep_parked(kept)
        for one in kept:
            stored, _ = self._aside.pop(one.parked.key)
            self._partials[one.parked.key] = Partial(stored, one.parked)
