"""What the settings want here: fetched when nothing else is to be done, and kept as they say.

In order: one that would evict another wished for before it stays away and is
reported, rather than that the two take turns.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.fetching.fetches import Fetches
from weightd.cache.fetching.terms import FetchTerms, Wish
from weightd.cache.pinning import Pins
from weightd.errors import NotPinned, StateUnwritable, WeightdError
from weightd.model import GenerationId, Key

HOLDER: Final = "weightd:preload"

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

    async def wish(self, wishes: Sequence[Wish]) -> None:
        """Replace the list; what is not wished any more is kept for nobody."""
        self._wishes = tuple(wishes)
        self._reported.clear()
        forever = {wish.key for wish in wishes if wish.keep == "forever"}
        # Also those that an earlier run pinned, by settings that were others then.
        held = {one.id.key for one in self._context.ledger.generations() if HOLDER in one.pins}
        for key in held - forever:
            await self._unpin(key)
        await self.tidy()

    async def tidy(self) -> None:
        """Fetch what is missing, keep what is here as long as it is to be kept."""
        spare: set[Key] = set()
        for wish in self._wishes:
            if self._context.ledger.current(wish.key) is None:
                self._fetch(wish, frozenset(spare))
            elif wish.keep == "forever":
                await self._pin(wish.key)
            spare.add(wish.key)
        self._guard()

    def _fetch(self, wish: Wish, spare: frozenset[Key]) -> None:
        try:
            self._fetches.preload(wish.key, FetchTerms(wish.sources), spare)
        except WeightdError as error:
            if self._reported.get(wish.key) != error.code:
                self._reported[wish.key] = error.code
                log.warning("%s is not preloaded: %s", wish.key, error)

    async def _pin(self, key: Key) -> None:
        if self._context.ledger.held(HOLDER, key):
            return
        try:
            await self._pins.pin(HOLDER, key, None, True, None, None)
        except WeightdError as error:
            log.warning("%s is not pinned for the preload: %s", key, error)

    async def _unpin(self, key: Key) -> None:
        try:
            await self._pins.unpin(HOLDER, key, None)
        except NotPinned:
            return
        except StateUnwritable as error:
            log.warning("%s stays pinned for the preload: %s", key, error)

    def _guard(self) -> None:
        """Keep, without a pin, what was used less long ago than it is to be kept."""
        ledger, now = self._context.ledger, self._context.clock.now()
        wanted: dict[Key, GenerationId] = {}
        for wish in self._wishes:
            generation = ledger.current(wish.key)
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
