"""A cache as one would first write it down: no disk, no bytes, no waiting.

It knows what is open outside, as the kernel does, and says what must become of
every wish.  Sizes are in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Lease(NamedTuple):
    """How long a holder may be silent, and when it lapses; None for ever."""

    ttl: float | None
    until: float | None


@dataclass(eq=False)
class Copy:
    """One content of one key."""

    key: str
    seed: int
    blocks: int
    pins: dict[str, Lease] = field(default_factory=dict)
    open: bool = False
    seen_open: bool = False
    damaged: bool = False

    @property
    def kept(self) -> bool:
        return bool(self.pins) or self.seen_open


class Naive:
    """Answers are the code of the refusal, or what was asked for."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.copies: list[Copy] = []
        self.current: dict[str, Copy] = {}
        self.idle_first: list[str] = []
        self._pinned_in_order: dict[tuple[str, str], list[Copy]] = {}

    # -- Wishes ----------------------------------------------------------------

    def put(self, key: str, seed: int, blocks: int) -> str:
        refusal = self._make_room(key, blocks)
        if refusal is not None:
            return refusal
        known = next((one for one in self.copies if (one.key, one.seed) == (key, seed)), None)
        if known is not None and known.damaged:
            return "pinned"
        if known is not None and self.current.get(key) is known:
            self._touch(known)
            return "same"
        copy = known
        if copy is None:
            copy = Copy(key, seed, blocks)
            self.copies.append(copy)
        previous = self.current.get(key)
        self.current[key] = copy
        self._touch(copy)
        if previous is not None and not previous.kept:
            self._end(previous)
        return "created"

    def _make_room(self, key: str, blocks: int) -> str | None:
        if blocks > self.capacity:
            return "too-large"
        while True:
            short = blocks - (self.capacity - sum(one.blocks for one in self.copies))
            if short <= 0:
                return None
            idle = [self.current[name] for name in self.idle_first]
            idle.sort(key=lambda one: one.key != key)  # the one to be replaced first
            idle = [one for one in idle if not one.kept]
            if short > sum(one.blocks for one in idle):
                return "blocked"
            victims = []
            while short > 0:
                victims.append(idle.pop(0))
                short -= victims[-1].blocks
            refused = [one for one in victims if one.open]
            for victim in refused:
                victim.seen_open = True
            if not refused:
                for victim in victims:
                    self._forget(victim)
                return None

    def get(self, key: str) -> Copy | None:
        copy = self.current.get(key)
        if copy is not None:
            self._touch(copy)
        return copy

    def pin(self, holder: str, key: str, now: float, ttl: float | None) -> Copy | None:
        held = self._pinned_in_order.get((holder, key), [])
        copy = self.current.get(key)
        if held and copy not in held:
            copy = held[-1]
        if copy is None:
            return None
        if copy not in held:
            self._pinned_in_order.setdefault((holder, key), []).append(copy)
        copy.pins[holder] = Lease(ttl, None if ttl is None else now + ttl)
        self._touch(copy)
        return copy

    def unpin(self, holder: str, key: str) -> bool:
        held = list(self._pinned_in_order.get((holder, key), []))
        for copy in held:
            self._drop(copy, holder)
        return bool(held)

    def lapse(self, now: float) -> None:
        due = sorted(
            (lease.until, holder, number)
            for number, copy in enumerate(self.copies)
            for holder, lease in copy.pins.items()
            if lease.until is not None and lease.until <= now
        )
        copies = list(self.copies)
        for _, holder, number in due:
            self._drop(copies[number], holder)

    def delete(self, key: str) -> str:
        copy = self.current.get(key)
        if copy is None:
            return "not-resident"
        if copy.seen_open:
            copy.seen_open = copy.open
        if copy.pins:
            return "pinned"
        if copy.open:
            copy.seen_open = True
            return "in-use"
        self._forget(copy)
        return "deleted"

    def damage(self, copy: Copy) -> None:
        """Its file vanished, and somebody looked."""
        copy.damaged = True
        del self.current[copy.key]
        self.idle_first.remove(copy.key)
        if not copy.kept:
            self._forget(copy)

    def ask_again(self) -> None:
        for copy in list(self.copies):
            if copy.seen_open:
                copy.seen_open = copy.open
                self._end_if_done(copy)

    def restart(self, now: float) -> None:
        """What the kernel said is forgotten, and every lease gets its full time anew."""
        for copy in list(self.copies):
            copy.seen_open = False
            for holder, (ttl, _) in copy.pins.items():
                copy.pins[holder] = Lease(ttl, None if ttl is None else now + ttl)
            self._end_if_done(copy)

    # -- What follows ------------------------------------------------------------

    def _touch(self, copy: Copy) -> None:
        if self.current.get(copy.key) is copy:
            if copy.key in self.idle_first:
                self.idle_first.remove(copy.key)
            self.idle_first.append(copy.key)

    def _drop(self, copy: Copy, holder: str) -> None:
        del copy.pins[holder]
        self._pinned_in_order[holder, copy.key].remove(copy)
        if not copy.pins:
            self._touch(copy)
        self._end_if_done(copy)

    def _end_if_done(self, copy: Copy) -> None:
        if self.current.get(copy.key) is not copy and not copy.kept:
            self._end(copy)

    def _end(self, copy: Copy) -> None:
        """A copy that nobody is answered with goes, unless it is open."""
        if copy.open:
            copy.seen_open = True
        else:
            self.copies.remove(copy)

    def _forget(self, copy: Copy) -> None:
        self.copies.remove(copy)
        if self.current.get(copy.key) is copy:
            del self.current[copy.key]
            self.idle_first.remove(copy.key)
