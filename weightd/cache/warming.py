"""Models read into the page cache, for whoever is about to map them.

A reading keeps nothing from anybody: the model may be evicted meanwhile, and is a
miss then.  It ends with whoever asked for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from weightd.cache.context import Context
from weightd.cache.lookups import Lookups
from weightd.errors import Draining, IoError, NotResident, TooMany
from weightd.ledger import Generation
from weightd.model import Key
from weightd.store import Warming

LOOKED_AT_SECONDS: Final = 0.5
"""Between two looks at whether the disk still gives bytes."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """Of a model's ``bytes``, so many were in memory at the end."""

    bytes: int
    cached: int


class Warmings:
    """Those under way and those that wait for their turn."""

    def __init__(self, context: Context, lookups: Lookups) -> None:
        self._context = context
        self._lookups = lookups
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._draining = asyncio.Event()

    async def warm(self, key: Key) -> Warmed:
        """Read the current generation of ``key`` into the page cache.

        No lookup is counted.  Raises NotResident, also when it goes meanwhile,
        TooMany, Draining and IoError.
        """
        self._context.must_take_new()
        if self._waiting > self._context.options.warmings:
            raise TooMany("models being read into memory, or waiting", self._waiting)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._warm(await self._lookups.present(key))
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        """End what is under way."""
        self._draining.set()

    async def _warm(self, generation: Generation) -> Warmed:
        context, manifest = self._context, self._context.models[generation.id].manifest
        warming = Warming()
        work = context.workers.warm(context.store.warm, manifest, warming)
        # Nobody may be there any more to see it fail.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await self._while_it_gives(work, draining, warming, str(manifest.key))
        finally:
            warming.stopping = True
            draining.cancel()
        try:
            cached = work.result()
        except FileNotFoundError:
            self._lookups.doubt(generation)
            raise NotResident(key=str(manifest.key)) from None
        assert cached is not None, "nobody else stops it"
        return Warmed(manifest.bytes, cached)

    async def _while_it_gives(
        self,
        work: asyncio.Future[int | None],
        draining: asyncio.Future[Literal[True]],
        warming: Warming,
        key: str,
    ) -> None:
        """Wait for the end of a reading.  Raises IoError when nothing more comes, and Draining."""
        clock, seconds = asyncio.get_running_loop(), self._context.options.read_timeout
        seen, seen_at = -1, clock.time()
        while not work.done():
            if draining.done():
                raise Draining
            if seen != warming.done:
                seen, seen_at = warming.done, clock.time()
            if clock.time() - seen_at >= seconds:
                raise IoError(
                    call=f"reading of {key}", error=f"the disk gave nothing for {seconds:g} s"
                )
            await asyncio.wait(
                (work, draining),
                timeout=LOOKED_AT_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
