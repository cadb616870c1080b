"""A cache as one would first write it down: no disk, no bytes, no waiting.

It knows what is open outside, as the kernel does, and says what must become of
every wish.  Sizes are in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SHARED: Final = "shared"
"""The file that is the same in every model that is fetched."""

SHARED_BLOCKS: Final = 2


class Lease(NamedTuple):
    """How long a holder may be silent, and when it lapses; None for ever."""

    ttl: float | None
    until: float | None


@dataclass(eq=False)
class Blob:
    """One file's content on the disk, which several copies may have."""

    blocks: int


@dataclass(eq=False)
class Copy:
    """One content of one key: a file of its own, and the shared one if it was fetched."""

    key: str
    seed: int
    own: Blob
    shared: Blob | None = None
    pins: dict[str, Lease] = field(default_factory=dict)
    open: bool = False
    seen_open: bool = False
    damaged: bool = False

    @property
    def blobs(self) -> frozenset[Blob]:
        return frozenset([self.own] if self.shared is None else [self.own, self.shared])

    @property
    def blocks(self) -> int:
        return size_of(self.blobs)

    @property
    def kept(self) -> bool:
        return bool(self.pins) or self.seen_open


@dataclass(eq=False)
class Left:
    """What an unfinished fetch left: so many blocks of the copy's own file, the shared one."""

    key: str
    own: int
    shared: bool
    made: int

    @property
    def blocks(self) -> int:
        return self.own + self.shared * SHARED_BLOCKS


@dataclass(eq=False)
class Upload:
    """A directory that somebody fills; ``written`` blocks of it are there."""

    key: str
    seed: int
    blocks: int
    written: int = 0


def size_of(blobs: Iterable[Blob]) -> int:
    return sum(blob.blocks for blob in set(blobs))


def used_by(copies: Iterable[Copy]) -> set[Blob]:
    return {blob for copy in copies for blob in copy.blobs}


class Naive:
    """Answers are the code of the refusal, or what was asked for."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.copies: list[Copy] = []
        self.current: dict[str, Copy] = {}
        self.idle_first: list[str] = []
        self.left: list[Left] = []
        """The first to go before all others; one of a key at most."""
        self.uploads: list[Upload] = []
        self._linked: Copy | None = None
        self._made = 0
        self._pinned_in_order: dict[tuple[str, str], list[Copy]] = {}

    # -- Wishes ----------------------------------------------------------------

    @property
    def used(self) -> int:
        return self._kept + sum(one.written for one in self.uploads)

    @property
    def promised(self) -> int:
        """What is here, and what may still come."""
        return self._kept + sum(one.blocks for one in self.uploads)

    @property
    def _kept(self) -> int:
        return size_of(used_by(self.copies)) + sum(one.blocks for one in self.left)

    def left_of(self, key: str) -> Left | None:
        return next((one for one in self.left if one.key == key), None)

    def put(self, key: str, seed: int, blocks: int) -> str:
        refusal = self._make_room(key, blocks)
        if refusal is not None:
            return refusal
        return self._arrive(Copy(key, seed, Blob(blocks)))

    def begin_upload(self, key: str, seed: int, blocks: int) -> str | None:
        refusal = self._make_room(key, blocks)
        if refusal is None:
            self.uploads.append(Upload(key, seed, blocks))
        return refusal

    def commit_upload(self, upload: Upload) -> str:
        if upload.written < upload.blocks:
            return "invalid-request"
        answer = self._arrive(Copy(upload.key, upload.seed, Blob(upload.blocks)))
        if answer != "pinned":
            self.uploads.remove(upload)
        return answer

    def fetch(self, key: str, seed: int, blocks: int, linked: Copy | None) -> str:
        """``linked`` is where the shared file is, if it is anywhere."""
        current = self.current.get(key)
        if current is not None and current.seed == seed:
            self._touch(current)
            return "same"
        if (refusal := self.begin(key, seed, blocks, linked)) is not None:
            return refusal
        resumed, linked = self.left_of(key), self._linked
        self.give_up(key)
        if resumed is not None and resumed.shared:
            linked = None
        shared = Blob(SHARED_BLOCKS) if linked is None else linked.shared
        answer = self._arrive(Copy(key, seed, Blob(blocks), shared))
        if answer == "pinned":
            self.leave(key, blocks, shared=linked is None)
        return answer

    def begin(self, key: str, seed: int, blocks: int, linked: Copy | None) -> str | None:
        """Make room for what is fetched; the refusal, if that is what it comes to.

        What was begun is brought to its end, though it could be linked.
        """
        same, resumed = self._known(key, seed), self.left_of(key)
        if resumed is not None and resumed.shared:
            linked = None
        if same is not None and not same.damaged and (resumed is None or not resumed.own):
            blocks = 0
        needed = blocks + (0 if linked else SHARED_BLOCKS)
        return self._make_room(key, needed, linked=linked, resumed=resumed)

    def _known(self, key: str, seed: int) -> Copy | None:
        return next((one for one in self.copies if (one.key, one.seed) == (key, seed)), None)

    def leave(self, key: str, own: int, *, shared: bool) -> None:
        self._made += 1
        self.left.append(Left(key, own, shared, self._made))

    def give_up(self, key: str) -> None:
        left = self.left_of(key)
        if left is not None:
            self.left.remove(left)

    def _arrive(self, copy: Copy) -> str:
        key = copy.key
        known = self._known(key, copy.seed)
        if known is not None and known.damaged:
            return "pinned"
        if known is not None and self.current.get(key) is known:
            self._touch(known)
            return "same"
        if known is None:
            self.copies.append(copy)
        else:
            copy = known
        previous = self.current.get(key)
        self.current[key] = copy
        self._touch(copy)
        if previous is not None and not previous.kept:
            self._end(previous)
        return "created"

    def _make_room(
        self, key: str, blocks: int, *, linked: Copy | None = None, resumed: Left | None = None
    ) -> str | None:
        own = 0 if resumed is None else resumed.blocks
        if max(own, blocks) > self.capacity:
            return "too-large"
        refusal = self._go(key, blocks, own, linked, resumed)
        # Once more, if what was in use no longer is.
        if refusal is not None and self.ask_again():
            refusal = self._go(key, blocks, own, linked, resumed)
        return refusal

    def _go(
        self, key: str, blocks: int, own: int, linked: Copy | None, resumed: Left | None
    ) -> str | None:
        """Have the first of what may go be gone; the refusal, if that does not suffice."""
        while True:
            short = max(0, blocks - own) - (self.capacity - self.promised)
            if short <= 0:
                self._linked = linked
                return None
            idle = [self.current[name] for name in self.idle_first]
            idle.sort(key=lambda one: one.key != key)  # the one to be replaced first
            idle = [one for one in idle if not one.kept and one is not linked]
            staying = used_by(one for one in self.copies if one not in idle)
            dropped = [one for one in self.left if one is not resumed]
            evictable = size_of(used_by(idle) - staying)
            if short > evictable + sum(one.blocks for one in dropped):
                return "blocked"
            going, victims = self._choose(short, dropped, idle)
            refused = [one for one in victims if one.open]
            for victim in refused:
                victim.seen_open = True
            if not refused:
                for victim in victims:
                    self._forget(victim)
                self.left = [one for one in self.left if one not in going]
                self._linked = linked
                return None
            # What was named and came back is what came last, so the first to be linked to.
            back = [one for one in victims if one.shared is not None and not one.damaged]
            if linked is not None and back:
                linked = back[-1]
            if resumed is not None:
                # It was an arrival for a moment, and is the youngest now.
                self.left.remove(resumed)
                self.left.append(resumed)

    def _choose(
        self, short: int, dropped: list[Left], idle: list[Copy]
    ) -> tuple[list[Left], list[Copy]]:
        """The first of each until so much is free; no copy while anything left over would do."""
        going: list[Left] = []
        victims: list[Copy] = []
        while short > 0 and dropped:
            going.append(dropped.pop(0))
            short -= going[-1].blocks
        while short > 0:
            before = size_of(used_by(one for one in self.copies if one not in victims))
            victims.append(idle.pop(0))
            after = size_of(used_by(one for one in self.copies if one not in victims))
            short -= before - after
        return going, victims

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
        else:
            # A renewal looks whether the model is held by now, and sees this.
            copy.seen_open = copy.open
        copy.pins[holder] = Lease(ttl, None if ttl is None else now + ttl)
        self._touch(copy)
        return copy

    def pin_fetched(self, holder: str, key: str) -> None:
        """For ever, whatever else of the key the holder has."""
        copy = self.current[key]
        held = self._pinned_in_order.setdefault((holder, key), [])
        if copy not in held:
            held.append(copy)
        copy.pins[holder] = Lease(None, None)
        self._touch(copy)

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

    def ask_again(self) -> bool:
        """Look again at what was open; whether any no longer is."""
        let_go = False
        for copy in list(self.copies):
            if copy.seen_open:
                copy.seen_open = copy.open
                let_go |= not copy.open
                self._end_if_done(copy)
        return let_go

    def restart(self, now: float) -> None:
        """What the kernel said is forgotten, and every lease gets its full time anew."""
        self.left.sort(key=lambda one: one.made)
        self.uploads.clear()
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
