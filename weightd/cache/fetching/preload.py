"""What the settings want here: fetched when nothing else is to be done, and kept as they say.

In order: one that would evict another wished for before it stays away and is
reported, rather than that the two take turns.  It is wished for again when the
books have room for it, or after a while; what somebody cancels, and what turned
out to be other content, when the list is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from weightd.cache.admission import Spares
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.fetching.fetches import Fetches
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.terms import FetchTerms, Wish
from weightd.cache.pinning import Pins
from weightd.errors import (
    Blocked,
    DigestMismatch,
    DiskFull,
    FetchCancelled,
    NotPinned,
    StateUnwritable,
    TooLarge,
    WeightdError,
)
from weightd.ledger import Generation
from weightd.model import OWN_HOLDERS, GenerationId, Key

HOLDER: Final = f"{OWN_HOLDERS}preload"

IDLE_SECONDS: Final = 600.0
"""What somebody used less long ago does not go for a preload."""

AGAIN_SECONDS: Final = 300.0
"""How long what did not fit is let be, since its origin is asked each time."""

log = logging.getLogger(__name__)


class Preload:
    """Brings wishes about; `tidy` is called again and again."""

    def __init__(
        self, context: Context, evictions: Evictions, fetches: Fetches, pins: Pins
    ) -> None:
        self._context = context
        self._evictions = evictions
        self._fetches = fetches
        self._pins = pins
        self._wishes: tuple[Wish, ...] = ()
        self._reported: dict[Key, str] = {}
        self._kept: dict[Key, GenerationId] = {}
        self._given_up: set[Key] = set()
        """What is let be until the list is read again, also when its job is long forgotten."""
        self._before: set[str] = set()
        """The jobs that had ended when the list was read: since then all may be otherwise."""

    async def wish(self, wishes: Sequence[Wish]) -> None:
        """Replace the list; what is not wished any more is kept for nobody."""
        self._wishes = tuple(wishes)
        self._reported.clear()
        self._given_up.clear()
        forever = {wish.key: wish for wish in wishes if wish.keep == "forever"}
        # Also those that an earlier run pinned, by settings that were others then.
        held = [one.id for one in self._context.ledger.generations() if HOLDER in one.pins]
        for id in held:
            wish = forever.get(id.key)
            if wish is None or wish.digest not in (None, id.digest):
                await self._unpin(id.key)
        going_on = filter(self._goes_on, wishes)
        await self._fetches.unload({wish.key: wish.sources for wish in going_on})
        last = [self._fetches.last(wish.key) for wish in wishes]
        self._before = {job.id for job in last if job is not None}
        await self.tidy()

    async def tidy(self) -> None:
        """Fetch what is missing, keep what is here as long as it is to be kept."""
        before: set[Key] = set()
        for place, wish in enumerate(self._wishes):
            if self._here(wish) is None:
                self._fetch(wish, place, partial(self._is_wanted_more, frozenset(before)))
            else:
                self._reported.pop(wish.key, None)
                if wish.keep == "forever":
                    await self._pin(wish.key)
            before.add(wish.key)
        self._guard()

    def _here(self, wish: Wish) -> Generation | None:
        """What is here of a wish; other content than it insists on is not."""
        current = self._context.ledger.current(wish.key)
        if current is not None and wish.digest in (None, current.id.digest):
            return current
        return None

    def _goes_on(self, wish: Wish) -> bool:
        """Whether what is under way for a key, if anything, is still what is wished."""
        job = self._fetches.live(wish.key)
        return job is None or (job.credential, job.digest) == (wish.credential, wish.digest)

    def _is_wanted_more(self, before: frozenset[Key], there: Generation) -> bool:
        """Whether a model is not to go for a preload, which comes after those ``before``.

        What somebody uses, and did not wish for, would be fetched again at once.
        """
        if there.id.key in before:
            return True
        wished = any(wish.key == there.id.key for wish in self._wishes)
        return not wished and self._context.clock.now() - there.last_used < IDLE_SECONDS

    def _fetch(self, wish: Wish, place: int, spares: Spares) -> None:
        if wish.key in self._given_up:
            return
        last = self._fetches.last(wish.key)
        if last is not None and _is_for(last, wish) and last.error is not None:
            self._report(wish.key, last.error)
            if self._is_let_be(last, spares):
                return
        try:
            kept = wish.keep == "forever"
            terms = FetchTerms(
                wish.sources,
                wish.digest,
                holder=HOLDER if kept else None,
                forever=kept,
                credential=wish.credential,
            )
            self._fetches.preload(wish.key, terms, place, spares)
        except WeightdError as error:
            self._report(wish.key, error)

    def _report(self, key: Key, error: WeightdError) -> None:
        if self._reported.get(key) != error.code:
            self._reported[key] = error.code
            figures = {"key": str(key), "code": error.code, "reason": error.detail}
            log.warning("not preloaded", extra=figures)

    def _is_let_be(self, last: Job, spares: Spares) -> bool:
        """Whether nothing has changed since it did not fit, or it is given up.

        That is what somebody cancelled, and what was all here and other content
        than is insisted on.
        """
        if last.id in self._before:
            return False
        other = isinstance(last.error, DigestMismatch) and last.error.expected == last.digest
        if isinstance(last.error, FetchCancelled) or other:
            self._given_up.add(last.key)
            return True
        if not isinstance(last.error, TooLarge | Blocked | DiskFull):
            return False
        if self._context.clock.now() - (last.ended_at or 0.0) >= AGAIN_SECONDS:
            return False
        if isinstance(last.error, DiskFull) or last.needed is None:
            return True
        try:
            victims = self._context.ledger.plan(last.key, last.needed)
        except (TooLarge, Blocked):
            return True
        return any(spares(victim) for victim in victims)

    async def _pin(self, key: Key) -> None:
        held = self._context.ledger.held(HOLDER, key)
        current = self._context.ledger.current(key)
        if any(current is not None and pin.generation == current.id for pin in held):
            return
        if held:
            # Of a predecessor, which goes then.
            await self._unpin(key)
        try:
            await self._pins.pin(HOLDER, key, None, True, None, None)
        except WeightdError as error:
            figures = {"key": str(key), "reason": error.detail}
            log.warning("not pinned for the preload", extra=figures)

    async def _unpin(self, key: Key) -> None:
        try:
            await self._pins.unpin(HOLDER, key, None)
        except NotPinned:
            return
        except StateUnwritable as error:
            figures = {"key": str(key), "reason": error.detail}
            log.warning("it stays pinned for the preload", extra=figures)

    def _guard(self) -> None:
        """Keep, without a pin, what was used less long ago than it is to be kept."""
        ledger, now = self._context.ledger, self._context.clock.now()
        wanted: dict[Key, GenerationId] = {}
        for wish in self._wishes:
            generation = self._here(wish)
            if generation is None or not isinstance(wish.keep, float | int):
                continue
            if now - generation.last_used < wish.keep:
                wanted[wish.key] = generation.id
        for key, id in list(self._kept.items()):
            if wanted.get(key) != id:
                del self._kept[key]
                gone = ledger.read(id, -1)
                if gone is not None:
                    self._context.tasks.spawn(self._evictions.let_go([gone]), "let go")
                self._context.changed.notify()
        for key, id in wanted.items():
            if key not in self._kept:
                self._kept[key] = id
                ledger.read(id, 1)


def _is_for(job: Job, wish: Wish) -> bool:
    """Whether a job was for what is wished, from there and by the same name."""
    asked = job.sources, job.credential, job.digest
    return asked == (wish.sources, wish.credential, wish.digest)
