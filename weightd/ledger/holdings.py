"""What stands on the node, who uses it, and who keeps it.

Nothing is promised and nothing leaves here: that is `ledger`, which builds on this.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Final

from weightd.errors import HolderFigures, NotPinned, NotResident
from weightd.ledger.entries import Doomed, Pinning
from weightd.ledger.generations import Generation
from weightd.ledger.guards import Guards
from weightd.ledger.pins import HOLDERS_NAMED, PinBook
from weightd.ledger.policy import Policy
from weightd.ledger.shelf import Shelf
from weightd.model import Blob, Digest, GenerationId, Key, Pin

STORY_LENGTH: Final = 200
"""How many of the last stimuli are kept for the message of a failed check."""


class Holdings:
    """Every generation that can be reached, its uses and its guards."""

    def __init__(self, policy: Policy) -> None:
        self.story: deque[tuple[object, ...]] = deque(maxlen=STORY_LENGTH)
        self._shelf = Shelf(policy)
        self._guards = Guards(self._shelf)
        self._pins = PinBook()

    # -- What there is ---------------------------------------------------------

    def current(self, key: Key) -> Generation | None:
        """The generation that a lookup of ``key`` answers, without counting a use."""
        return self._shelf.current.get(key)

    def generation(self, id: GenerationId) -> Generation | None:
        """The generation ``id`` if it is resident or retired."""
        return self._shelf.generations.get(id)

    def keys(self) -> Iterator[Key]:
        """Every key that a lookup would answer, in no order."""
        return iter(self._shelf.current)

    def keys_after(self, key: Key | None, count: int) -> list[Key]:
        """The first ``count`` of them behind ``key`` as they are written; None is before all."""
        return self._shelf.current.after(key, count)

    def generations(self) -> Iterator[Generation]:
        """Every resident and retired generation, in no order."""
        return iter(self._shelf.generations.values())

    def idle_first(self) -> Iterator[Generation]:
        """Every resident generation in order of eviction, guarded ones included."""
        return self._shelf.idle_first()

    def leaving(self, key: Key) -> bool:
        """Whether a generation of ``key`` is named as a victim and may still be refused."""
        return key in self._shelf.leaving

    @property
    def settling(self) -> bool:
        """Whether any victim is only named and may still be refused.

        Its bytes are taken for free.  An arrival promised them meanwhile loses that promise if
        the victim is refused, so whoever acts on the books waits until nothing is settling.
        """
        return bool(self._shelf.leaving)

    def find_blob(self, sha256: Digest, bytes: int) -> tuple[GenerationId, Blob] | None:
        """Who has this content, in so many bytes of blocks, for an arrival to link to.

        Name the generation in the ``links`` of `Ledger.reserve` before anything else happens.
        """
        return self._shelf.contents.find(sha256, bytes)

    def load(
        self,
        id: GenerationId,
        blobs: tuple[Blob, ...],
        *,
        retired: bool,
        last_used: float,
        hits: int,
    ) -> Generation:
        """Enter a generation found on disk; call in order of recency, the idlest first.

        Raises IllegalMove when its key has a current generation already.
        """
        generation = Generation(id, blobs, last_used, hits)
        self._shelf.load(generation, retired=retired)
        return generation

    def rebind(self, id: GenerationId, blobs: tuple[Blob, ...]) -> None:
        """Correct the blobs of a generation to what its files turned out to be."""
        self._shelf.rebind(self._shelf.known(id), blobs)

    # -- Use -------------------------------------------------------------------

    def use(self, key: Key, now: float) -> Generation:
        """Count a use of the current generation.  Raises NotResident: a miss."""
        generation = self._shelf.current.get(key)
        if generation is None:
            raise NotResident(key=str(key))
        generation.hits += 1
        self._shelf.touch(generation, now)
        return generation

    def touch(self, id: GenerationId, now: float) -> None:
        """Note a use that is no lookup: the same content arrived once more."""
        self._shelf.touch(self._shelf.known(id), now)

    def read(self, id: GenerationId, readers: int) -> Doomed | None:
        """Count weightd's own readers up or down; answers a retired generation that may now go."""
        return self._guards.read(id, readers)

    def mark_use(self, id: GenerationId, seen: bool) -> Doomed | None:
        """Note whether the kernel reports ``id`` in use; answers a retired one that may now go."""
        return self._guards.mark_use(id, seen)

    # -- Pins ------------------------------------------------------------------

    def pin(
        self,
        holder: str,
        key: Key,
        now: float,
        *,
        ttl: float | None = None,
        forever: bool = False,
        digest: Digest | None = None,
        uid: int | None = None,
    ) -> Pinning:
        """Pin the current generation, or renew what this holder has of ``key``.

        A pin stays that of the ``uid`` who took it, whoever renews it.

        With ``digest``, exactly that generation.  Raises NotResident, or
        GenerationGone when another one is current.
        """
        generation = self._pins.choose(holder, key, self.current(key), digest)
        previous = generation.pins.get(holder)
        since = now if previous is None else previous.since
        until = None if ttl is None else now + ttl
        owner = uid if previous is None else previous.uid
        pin = Pin(holder, generation.id, since, ttl, until, forever, owner)
        if previous is None:
            generation.hits += 1
        self._shelf.touch(generation, now)
        self.put_pin(pin)
        return Pinning(generation, pin, previous)

    def put_pin(self, pin: Pin) -> None:
        """Enter a pin as it is: new, renewed, or loaded from stable storage."""
        generation = self._shelf.known(pin.generation)
        self.story.append(("pin", pin.holder, str(pin.generation.key), pin.until))
        self._shelf.guard(generation, lambda: self._pins.put(generation, pin))

    def held(self, holder: str, key: Key) -> list[Pin]:
        """The pins that ``holder`` has of generations of ``key``."""
        return [generation.pins[holder] for generation in self._pins.held(holder, key)]

    def owned(self, uid: int) -> int:
        """How many pins the user ``uid`` took."""
        return self._pins.owned(uid)

    def unpin(self, holder: str, key: Key, now: float) -> tuple[list[Pin], list[Doomed]]:
        """End every pin that ``holder`` has of ``key``.

        Answers the pins, and the retired generations that may now go.  Raises NotPinned.
        """
        pins = self.held(holder, key)
        if not pins:
            raise NotPinned(holder=holder, key=str(key))
        doomed = [self.drop_pin(pin, now) for pin in pins]
        return pins, [one for one in doomed if one is not None]

    def drop_pin(self, pin: Pin, now: float) -> Doomed | None:
        """End one pin; the end of a generation's last one counts as a use.

        Answers the generation when it was retired and may now go.
        """
        generation = self._shelf.known(pin.generation)
        self._pins.must_stand(generation, pin.holder)
        self.story.append(("unpin", pin.holder, str(pin.generation.key)))
        if len(generation.pins) == 1:
            self._shelf.touch(generation, now)
        return self._shelf.guard(generation, lambda: self._pins.drop(generation, pin.holder))

    def lapsed(self, now: float, most: int = sys.maxsize) -> list[Pin]:
        """The leases that were not renewed in time, ``most`` at most; end each with `drop_pin`."""
        return self._pins.lapsed(now, most)

    def next_lapse(self) -> float | None:
        """When to ask `lapsed` again, at the latest."""
        return self._pins.next_lapse()

    def doubt_pins(self) -> None:
        """The record of pins was lost: keep all that is here until `accept_loss`."""
        self.story.append(("doubt pins",))
        self._guards.doubt()

    def accept_loss(self) -> list[Doomed]:
        """Take what nobody has pinned since for unpinned; answers what may now go."""
        self.story.append(("accept loss",))
        return self._guards.trust()

    @property
    def pins_known(self) -> bool:
        """False from `doubt_pins` to `accept_loss`."""
        return not self._guards.doubted

    def _keepers(self) -> tuple[HolderFigures, ...]:
        """Who keeps the most bytes: holders of pins, and processes that the kernel reports."""
        used = (
            HolderFigures("a process", str(one.id.key), one.bytes, None, None)
            for one in self._shelf.generations.values()
            if one.in_use and not one.pins
        )
        keepers = sorted((*self._pins.largest(), *used), key=lambda keeper: -keeper.bytes)
        return tuple(keepers[:HOLDERS_NAMED])
