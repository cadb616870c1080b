"""What goes on by itself: leases lapse, recency is written down, models are looked at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from weightd.cache.admission import Admission
from weightd.cache.checks import Checks
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.fetching.front import Fetching
from weightd.cache.pinning import Pins
from weightd.cache.sweep import Sweep
from weightd.cache.tasks import completed
from weightd.cache.trimming import Trimming
from weightd.cache.uploads import Uploads
from weightd.errors import IoError
from weightd.model import Eviction, GenerationId
from weightd.store import HistoryDatabase, NoSpace, Recency

log = logging.getLogger(__name__)


class Memory:
    """Recency and the eviction journal on their way to the disposable database."""

    def __init__(
        self,
        context: Context,
        evictions: Evictions,
        database: HistoryDatabase,
        known: Mapping[GenerationId, Recency],
    ) -> None:
        """``known`` is what the database says."""
        self._context = context
        self._evictions = evictions
        self._database = database
        self._sequence = max((entry.sequence for entry in known.values()), default=0)
        self._written = {id: (entry.last_used, entry.hits) for id, entry in known.items()}
        for id in known:
            # Evicted in an earlier run, and not forgotten then.
            if context.ledger.generation(id) is None:
                evictions.gone[id] = None
        # Two at once would each take off the journal what the other wrote.
        self._flushing = asyncio.Lock()

    async def flush(self) -> None:
        """Write down what was used and evicted since the last time.

        Raises IoError; then the same is written the next time.
        """
        async with self._flushing:
            await completed(self._flush())

    async def journal(self, limit: int, after: int) -> list[Eviction]:
        """At most ``limit`` evictions after sequence ``after``, oldest first.

        What could not be written down yet is among them.  Raises IoError when what was cannot
        be read: a page without it would end too early.
        """
        seconds = self._context.options.answer_timeout
        try:
            async with asyncio.timeout(seconds):
                call = self._database.evictions
                stored = await self._context.workers.housekeep(call, limit, after)
        except TimeoutError:
            raise IoError(
                call="read of history.db", error=f"no answer within {seconds:g} s"
            ) from None
        last = stored[-1].sequence if stored else after
        return [*stored, *self._evictions.journal.pending(last)][:limit]

    async def _flush(self) -> None:
        used = {}
        for generation in self._context.ledger.idle_first():
            use = generation.last_used, generation.hits
            if self._written.get(generation.id) != use:
                self._sequence += 1
                used[generation.id] = Recency(self._sequence, *use)
        journal, gone = self._evictions.journal.pending(), list(self._evictions.gone)
        forgotten = [id for id in gone if self._context.ledger.generation(id) is None]
        if used or journal or forgotten:
            await self._context.workers.housekeep(self._database.flush, used, forgotten, journal)
        for id in forgotten:
            self._written.pop(id, None)
        self._written.update((id, (entry.last_used, entry.hits)) for id, entry in used.items())
        # What came in during the flush stands behind what was written.
        if journal:
            self._evictions.journal.written(journal[-1].sequence)
        for id in gone:
            self._evictions.gone.pop(id, None)


class Upkeep:
    """The cache's own loops."""

    def __init__(
        self,
        context: Context,
        evictions: Evictions,
        pins: Pins,
        checks: Checks,
        memory: Memory,
        sweep: Sweep,
        admission: Admission,
        trimming: Trimming,
        fetching: Fetching,
        uploads: Uploads,
    ) -> None:
        self._context = context
        self._evictions = evictions
        self._pins = pins
        self._checks = checks
        self._memory = memory
        self._sweep = sweep
        self._admission = admission
        self._trimming = trimming
        self._fetching = fetching
        self._uploads = uploads
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the loops."""
        options = self._context.options
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "unlink": self._evictions.unlink_forever,
            "lapse": self._lapse_forever,
            "flush": partial(_every, options.flush_interval, self._memory.flush),
            "check": partial(_every, options.check_interval, self._checks.check_all, at_once=True),
            "sweep": partial(_every, options.sweep_interval, self._sweep.sweep),
            "name": partial(_every, options.sweep_interval, self._sweep.name),
            "hurry": partial(_every, options.hurry_interval, self._hurry),
            "trim": partial(_every, options.trim_interval, self._trimming.trim, at_once=True),
            "fetches": partial(_every, options.trim_interval, self._fetching.tidy, at_once=True),
            "uploads": partial(_every, options.upload_interval, self._uploads.tidy),
            "forget": partial(_every, options.trim_interval, self._pins.forget_again),
            "mark": partial(_every, options.trim_interval, self._evictions.retirements.mark_again),
            "let damaged go": partial(
                _every, options.trim_interval, self._evictions.let_damaged_go, at_once=True
            ),
        }
        for name, loop in loops.items():
            work = supervised(name, loop, self._context)
            self._loops.append(self._context.tasks.spawn(work, name))

    def stop(self) -> None:
        """End the loops; `Tasks.finish` waits for them."""
        self._evictions.stop()
        for loop in self._loops:
            loop.cancel()

    async def _lapse_forever(self) -> None:
        while True:
            await self._context.changed.wait(await self._pins.lapse())

    async def _hurry(self) -> None:
        """Look at what is in use while somebody waits for room, or a retired one for its end."""
        ledger = self._context.ledger
        if self._admission.waiting or ledger.usage().retired_models:
            await self._sweep.look_again()


async def supervised(name: str, loop: Callable[[], Awaitable[None]], context: Context) -> None:
    """Run a loop; one that ends with what nobody expected is said, and begun again."""
    while True:
        try:
            await loop()
        except Exception:
            context.health.failed(name)
            figures = {"loop": name}
            log.exception("a loop failed; this is a bug, and it goes on later", extra=figures)
        await asyncio.sleep(context.options.loop_pause)


async def _every(
    seconds: float, work: Callable[[], Awaitable[None]], *, at_once: bool = False
) -> None:
    """Do ``work`` every so many seconds; a disk that fails is said, and asked again."""
    if not at_once:
        await asyncio.sleep(seconds)
    while True:
        try:
            await work()
        except (IoError, NoSpace) as error:
            log.warning("what goes on by itself failed for now", extra={"reason": str(error)})
        await asyncio.sleep(seconds)
