"""Who pins what, and when each lease lapses.

A pin stands in two places that must agree: on its generation, where it guards
it, and in the index by holder and key, where unpin finds it.  `PinBook` is the
only one that writes either.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from weightd.errors import GenerationGone, HolderFigures, NotResident
from weightd.ledger.generations import Generation, IllegalMove
from weightd.model import Digest, GenerationId, Key, Pin

HOLDERS_NAMED: Final = 50
"""How many holders a refusal names at most."""


@dataclass(slots=True, order=True)
class _Lapse:
    at: float
    holder: str
    id: GenerationId = field(compare=False)


class PinBook:
    """Every pin, by holder and key, and the order in which leases lapse."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, Key], dict[Digest, Generation]] = {}
        self._pinned: dict[GenerationId, Generation] = {}
        self._lapses: list[_Lapse] = []
        self._owned: Counter[int | None] = Counter()
        self.count = 0

    def put(self, generation: Generation, pin: Pin) -> None:
        """Enter a pin, or replace the one that its holder has of this generation."""
        previous = generation.pins.get(pin.holder)
        self.count += previous is None
        if previous is not None:
            self._disown(previous)
        self._owned[pin.uid] += 1
        generation.pins[pin.holder] = pin
        self._pinned[generation.id] = generation
        held = self._index.setdefault((pin.holder, generation.id.key), {})
        held[generation.id.digest] = generation
        if pin.until is not None:
            heapq.heappush(self._lapses, _Lapse(pin.until, pin.holder, generation.id))
            self._forget_renewed()

    def drop(self, generation: Generation, holder: str) -> None:
        """Remove a pin that is there."""
        self._disown(generation.pins.pop(holder))
        if not generation.pins:
            del self._pinned[generation.id]
        index = (holder, generation.id.key)
        del self._index[index][generation.id.digest]
        if not self._index[index]:
            del self._index[index]
        self.count -= 1

    def owned(self, uid: int) -> int:
        """How many pins the user ``uid`` took."""
        return self._owned[uid]

    def _disown(self, pin: Pin) -> None:
        self._owned[pin.uid] -= 1
        if not self._owned[pin.uid]:
            del self._owned[pin.uid]

    def must_stand(self, generation: Generation, holder: str) -> None:
        """Raises IllegalMove when ``holder`` has no pin on ``generation``."""
        if holder not in generation.pins:
            raise IllegalMove(f"{holder} has no pin on {generation.id}")

    def largest(self) -> tuple[HolderFigures, ...]:
        """Who keeps the most bytes, `HOLDERS_NAMED` at most."""
        return holder_figures(
            heapq.nsmallest(HOLDERS_NAMED, self._pinned.values(), key=_largest_first),
            most=HOLDERS_NAMED,
        )

    def held(self, holder: str, key: Key) -> list[Generation]:
        """The generations of ``key`` that ``holder`` pins, the first pinned first."""
        return list(self._index.get((holder, key), {}).values())

    def choose(
        self, holder: str, key: Key, current: Generation | None, digest: Digest | None
    ) -> Generation:
        """What a pin by ``holder`` means: what it pins already, else what is current.

        A retired generation is pinned anew by nobody, or it would never go.
        Raises NotResident, or GenerationGone when ``digest`` is not current.
        """
        held = self._index.get((holder, key), {})
        if digest is not None:
            chosen = held.get(digest, current)
        elif current is not None and current.id.digest in held:
            chosen = current
        else:
            chosen = next(reversed(held.values()), current)
        if chosen is None:
            raise NotResident(key=str(key))
        if digest is not None and chosen.id.digest != digest:
            raise GenerationGone(key=str(key), generation=digest)
        return chosen

    def lapsed(self, now: float, most: int) -> list[Pin]:
        """Take the leases that were not renewed in time off the queue, ``most`` at most."""
        due: dict[tuple[str, GenerationId], Pin] = {}
        while self._lapses and self._lapses[0].at <= now and len(due) < most:
            pin = self._standing(heapq.heappop(self._lapses))
            if pin is not None:
                due[pin.holder, pin.generation] = pin
        return list(due.values())

    def next_lapse(self) -> float | None:
        """The earliest instant at which a lease can lapse."""
        while self._lapses and self._standing(self._lapses[0]) is None:
            heapq.heappop(self._lapses)
        return self._lapses[0].at if self._lapses else None

    def _standing(self, lapse: _Lapse) -> Pin | None:
        """The pin that this entry is about, unless it was renewed or let go since."""
        for generation in self.held(lapse.holder, lapse.id.key):
            pin = generation.pins[lapse.holder]
            if generation.id == lapse.id and pin.until == lapse.at:
                return pin
        return None

    def _forget_renewed(self) -> None:
        """Keep the queue within a multiple of the pins, however often they are renewed."""
        if len(self._lapses) > 64 + 4 * self.count:
            standing = {
                (lapse.at, lapse.holder, lapse.id): lapse
                for lapse in self._lapses
                if self._standing(lapse) is not None
            }
            self._lapses = list(standing.values())
            heapq.heapify(self._lapses)


def holder_figures(
    generations: Iterable[Generation], most: int | None = None
) -> tuple[HolderFigures, ...]:
    """Who pins these generations, the largest generation first; ``most`` of them at most."""
    figures = (
        HolderFigures(pin.holder, str(one.id.key), one.bytes, pin.since, pin.until)
        for one in sorted(generations, key=_largest_first)
        for pin in one.pins.values()
    )
    return tuple(islice(figures, most))


def _largest_first(generation: Generation) -> tuple[int, str]:
    return -generation.bytes, generation.id.digest
