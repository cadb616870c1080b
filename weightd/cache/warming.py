"""Models read into the page cache, for whoever is about to map them.

A reading keeps nothing from anybody: the model may be evicted meanwhile, and is a
miss then.  It ends with whoever asked for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from weightd.cache.context import Context
from weightd.cache.following import Following, rate_and_eta, while_it_gives
from weightd.cache.lookups import Lookups
from weightd.cache.records import WarmView
from weightd.errors import Draining, NotResident, TooMany, WeightdError
from weightd.ledger import Generation
from weightd.model import Key, Manifest
from weightd.store import Warming


@dataclass(frozen=True, slots=True)
class Warmed:
    """Of a model's ``bytes``, so many were in memory at the end."""

    bytes: int
    cached: int


@dataclass(slots=True, eq=False)
class _Course:
    """One reading: how far it is, and what came of it."""

    key: Key
    total: int = 0
    warming: Warming = field(default_factory=Warming)
    began_at: float | None = None
    cached: int | None = None
    error: WeightdError | None = None

    def view(self, now: float, ended: bool) -> WarmView:
        done = self.warming.done
        rate, eta = rate_and_eta(self.began_at, now, done, self.total)
        return WarmView(
            self.key,
            state="ended" if ended else "queued" if self.began_at is None else "reading",
            bytes_done=done,
            bytes_total=self.total,
            rate=rate,
            eta=eta,
            cached=self.cached,
            error=self.error,
        )


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
        return await self._warm(_Course(key))

    async def begin(self, key: Key) -> Following:
        """The same, told as it goes, for as long as that is followed.

        Raises NotResident, TooMany, Draining and IoError before it begins.
        """
        self._must_have_room()
        course = _Course(key, self._manifest(await self._lookups.present(key)).bytes)
        task = self._context.tasks.spawn(self._outcome(course), f"warm {key}")
        now = self._context.clock.now
        return Following(self._context, task, "warming", lambda ended: course.view(now(), ended))

    def stop(self) -> None:
        """End what is under way."""
        self._draining.set()

    def _must_have_room(self) -> None:
        """Raise Draining or TooMany."""
        self._context.must_take_new()
        if self._waiting > self._context.options.warmings:
            raise TooMany("models being read into memory, or waiting", self._waiting)

    def _manifest(self, generation: Generation) -> Manifest:
        return self._context.models[generation.id].manifest

    async def _outcome(self, course: _Course) -> str:
        try:
            await self._warm(course)
        except Draining:
            return "draining"
        except WeightdError as error:
            course.error = error
            return "failed"
        return "warm"

    async def _warm(self, course: _Course) -> Warmed:
        self._must_have_room()
        self._waiting += 1
        try:
            async with self._turn:
                return await self._read(course, await self._lookups.present(course.key))
        finally:
            self._waiting -= 1

    async def _read(self, course: _Course, generation: Generation) -> Warmed:
        context, manifest, warming = self._context, self._manifest(generation), course.warming
        course.total, course.began_at = manifest.bytes, context.clock.now()
        work = context.workers.warm(context.store.warm, manifest, warming)
        # Nobody may be there any more to see it fail.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await while_it_gives(
                work,
                lambda: warming.done,
                context.options.read_timeout,
                lambda: f"reading of {manifest.key}",
                draining,
            )
        finally:
            warming.stopping = True
            draining.cancel()
        try:
            course.cached = work.result()
        except FileNotFoundError:
            self._lookups.doubt(generation)
            raise NotResident(key=str(manifest.key)) from None
        assert course.cached is not None, "nobody else stops it"
        return Warmed(manifest.bytes, course.cached)
