"""`WeightCache`: the one place where ledger, store and origins meet.

The rooms beside this file each do one thing (admit, take in, evict, pin,
check); this class starts them, answers lookups, and is what callers hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import ParamSpec, TypeVar

from weightd.cache import start
from weightd.cache.admission import Admission
from weightd.cache.adoptions import Adoptions
from weightd.cache.arrivals import Arrivals
from weightd.cache.checks import Checks
from weightd.cache.clock import Clock, SteadyClock
from weightd.cache.context import Context, Options
from weightd.cache.events import EventLog
from weightd.cache.evictions import Evictions
from weightd.cache.fetching.front import Fetching
from weightd.cache.fetching.partials import Partials
from weightd.cache.fetching.terms import FetchOutcome, FetchTerms
from weightd.cache.journal import RECENT
from weightd.cache.lookups import Lookups
from weightd.cache.lost_pins import LostPins
from weightd.cache.overview import ARRIVALS_SHOWN, FAILURES_SHOWN, Overview, Wanted, overview
from weightd.cache.pin_writer import PinWriter
from weightd.cache.pinning import Pins
from weightd.cache.publishing import Publications
from weightd.cache.pulse import Pulse
from weightd.cache.records import (
    Body,
    Contents,
    Event,
    PinOutcome,
    PinView,
    PutOutcome,
    PutTerms,
    Record,
    Snapshot,
    State,
    Verdict,
)
from weightd.cache.snapshot import take_snapshot
from weightd.cache.sweep import Sweep
from weightd.cache.tasks import completed, ended
from weightd.cache.trimming import Trimming
from weightd.cache.upkeep import Memory, Upkeep
from weightd.cache.uploads import Uploads
from weightd.cache.verifying import Verifications
from weightd.cache.warming import Warmings
from weightd.cache.workers import Workers
from weightd.errors import (
    InUse,
    IoError,
    NotResident,
    Starting,
)
from weightd.failpoints import Reach, unarmed
from weightd.ledger import POLICIES, Ledger
from weightd.model import Digest, Eviction, Key
from weightd.store import (
    HistoryDatabase,
    PinDatabase,
    ScanReport,
    SeizeRefused,
    Store,
)

P = ParamSpec("P")
D = TypeVar("D", PinDatabase, HistoryDatabase)

log = logging.getLogger(__name__)


class WeightCache:
    """A directory of models within a byte budget.

    ``capacity`` and ``min_free`` are bytes.  Made, then `start`-ed once and
    `close`-d once, on one event loop, whose thread alone may call it.
    """

    def __init__(
        self,
        store: Store,
        *,
        capacity: int,
        min_free: int = 0,
        boot_id: str = "",
        clock: Clock | None = None,
        reach: Reach = unarmed,
        options: Options | None = None,
    ) -> None:
        clock = SteadyClock() if clock is None else clock
        options = Options() if options is None else options
        ledger = Ledger(capacity, POLICIES[options.policy]())
        self._context = Context(
            store=store,
            ledger=ledger,
            clock=clock,
            options=options,
            min_free=min_free,
            reach=reach,
            events=EventLog(clock, options.heartbeat),
            workers=Workers(options.transfers),
            partials=Partials(ledger),
        )
        self._boot_id = boot_id
        self._evictions = Evictions(self._context)
        self._sweep = Sweep(self._context, self._evictions)
        self._admission = Admission(self._context, self._evictions, self._sweep)
        self._checks = Checks(self._context, self._evictions)
        self._lookups = Lookups(self._context, self._evictions, self._checks)
        self._publications = Publications(self._context, self._evictions, self._checks)
        self._arrivals = Arrivals(
            self._context, self._admission, self._evictions, self._checks, self._publications
        )
        self.uploads = Uploads(self._context, self._admission, self._evictions, self._publications)
        self.adoptions = Adoptions(
            self._context, self._admission, self._evictions, self._publications
        )
        self.verifications = Verifications(self._context, self._checks)
        self.warmings = Warmings(self._context, self._lookups)
        self.pulse = Pulse(self._context)
        self._trimming = Trimming(self._context, self._evictions)
        self._foreign: tuple[str, ...] = ()
        self._started_at = clock.now()
        self._lost_pins: LostPins | None = None
        self._databases: list[PinDatabase | HistoryDatabase] = []
        self._upkeep: Upkeep | None = None
        self._memory: Memory | None = None

    # -- Life ------------------------------------------------------------------

    async def start(self) -> None:
        """Find what is on disk and enter it in the books; clean up in the background.

        Raises IoError or RootUnusable; the cache is closed then.
        """
        try:
            await self._start()
        except BaseException:
            await completed(self._shut())
            raise
        self._context.state = "ready"
        self._fetching.begin()

    async def _start(self) -> None:
        context = self._context
        report = await context.workers.disk(context.store.scan)
        history = await self._opened(HistoryDatabase, context.store.history_path)
        if history.lost is not None:
            figures = {"reason": str(history.lost)}
            log.warning("the order of eviction is not remembered", extra=figures)
        recency = await context.workers.housekeep(history.load)
        context.clock.not_before(start.latest(report, recency))
        superseded = start.enter(context, report, recency)
        self._foreign = tuple(report.foreign)
        last = await context.workers.housekeep(history.last_eviction_sequence)
        recent = await context.workers.housekeep(history.evictions, RECENT, max(0, last - RECENT))
        self._evictions.journal.begin(last, recent)
        self._publications.last_sequence = max(
            (found.manifest.sequence for found in report.models), default=0
        )
        pins = await self._start_pins(report)
        for id in superseded:
            await self._evictions.retirements.mark_or_later(id)
        self._memory = Memory(context, self._evictions, history, recency)
        self._fetching = Fetching(
            context,
            self._admission,
            self._evictions,
            self._checks,
            self._publications,
            self._lookups,
            pins,
            history,
        )
        await self._fetching.load()
        for partial in sorted(report.parked, key=lambda one: one.at):
            # Killed before the last one was out of the way, there may be two of a key.
            self._evictions.drop_partial(partial.key)
            context.partials.load(partial)
        self._evictions.add_debris(report.debris)
        self._evictions.add_damaged({one.generation: one.bytes for one in report.damaged})
        self._upkeep = Upkeep(
            context,
            self._evictions,
            pins,
            self._checks,
            self._memory,
            self._sweep,
            self._admission,
            self._trimming,
            self._fetching,
            self.uploads,
        )
        self._upkeep.start()

    async def _start_pins(self, report: ScanReport) -> Pins:
        context = self._context
        database = await self._opened(start.open_pins, context, expected=bool(report.models))
        loss = await context.workers.disk(database.loss)
        if loss is not None:
            context.ledger.doubt_pins()
        writer = PinWriter(context, database)
        lost = self._lost_pins = LostPins(context, self._evictions, writer)
        self._pins = Pins(context, self._evictions, writer, self._boot_id)
        self._pins.load(await context.workers.commit(database.load), report.damaged)
        if loss is not None:
            # Not before the pins taken since the loss stand in the books.
            lost.accept_at(loss.since + context.options.accept_loss_after)
        return self._pins

    async def _opened(self, make: Callable[P, D], /, *args: P.args, **kwargs: P.kwargs) -> D:
        """Open a database that `_shut` closes, even if this is cancelled meanwhile."""
        opening = self._context.workers.commit(make, *args, **kwargs)
        cancelled = await ended(opening)
        database = opening.result()
        self._databases.append(database)
        if cancelled is not None:
            raise cancelled
        return database

    @property
    def state(self) -> State:
        return self._context.state

    async def resize(self, capacity: int, min_free: int) -> None:
        """Change the budget, in bytes; a smaller one evicts down, as far as nothing keeps it.

        What is kept stays, and `Snapshot.over_budget_bytes` tells of it.  An
        arrival under way that can no longer fit is refused at its next bytes.
        A greater ``min_free`` holds some seconds later.  Raises IoError.
        """
        context = self._context
        context.ledger.resize(capacity)
        context.min_free = min_free
        context.changed.notify()
        if context.state != "starting":
            await self._trimming.to_the_budget()

    @property
    def waiting(self) -> int:
        """How many arrivals wait for room."""
        return self._admission.waiting

    def part(self) -> None:
        """Say from now on that it is not ready; until `drain`, what comes is taken still."""
        self._context.state = "draining"

    def drain(self) -> None:
        """Take nothing new from now on; what is under way goes on."""
        self.part()
        if self._context.takes_new:
            self._context.takes_new = False
            self._context.events.end("draining")
            self.verifications.stop()
            self.warmings.stop()
            if self._upkeep is not None:
                self._fetching.park()

    def cut_short(self) -> None:
        """Let nobody end what takes long: whoever verifies what was uploaded or adopted."""
        self._context.store.cut_short()

    async def close(self) -> None:
        """End what goes on by itself, write down what is remembered, let the files go.

        Whatever its callers had under way must have ended.  A second time, or
        after a start that failed, it does nothing.
        """
        self.drain()
        await completed(self._shut())

    async def _shut(self) -> None:
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._lost_pins is not None:
            self._lost_pins.stop()
        await self.uploads.close()
        await self._context.tasks.finish()
        if self._memory is not None:
            try:
                await self._memory.flush()
            except IoError as error:
                figures = {"reason": error.detail}
                log.warning("what was used last is not remembered", extra=figures)
        await asyncio.to_thread(self._close_files)

    def _close_files(self) -> None:
        self._context.workers.close()
        while self._databases:
            self._databases.pop().close()

    # -- Lookups ---------------------------------------------------------------

    async def get(self, key: Key) -> Record:
        """Look a model up: a hit or a miss, and a use.  Raises NotResident: a miss."""
        return await self._lookups.get(key)

    async def peek(self, key: Key) -> Record:
        """The same without counting or using anything.  Raises NotResident."""
        return await self._lookups.peek(key)

    def page(self, after: Key | None, limit: int) -> tuple[list[Record], Key | None]:
        """Up to ``limit`` resident models whose keys follow ``after``, and where to go on."""
        return self._lookups.page(after, limit)

    def resident(self) -> list[tuple[Key, int]]:
        """Every resident model and its bytes, the longest unused first."""
        return self._lookups.resident()

    def content(self, key: Key, file: str) -> AbstractAsyncContextManager[Contents]:
        """Open one file of a model, which is not evicted while it is read.

        No lookup is counted.  Raises NotResident or UnknownFile.
        """
        return self._lookups.content(key, file)

    # -- Changes ---------------------------------------------------------------

    async def put(self, key: Key, body: Body, terms: PutTerms) -> PutOutcome:
        """Take a model in; see `Arrivals.put`.  Raises Draining as well."""
        self._context.must_take_new()
        return await self._arrivals.put(key, body, terms)

    async def delete(self, key: Key) -> None:
        """Evict a model now.  Raises NotResident, Pinned or InUse."""
        generation = await self._sweep.seen_now(key)
        if generation is None:
            raise NotResident(key=str(key))
        doomed = self._context.ledger.evict(generation.id)
        try:
            await completed(self._evictions.evict([doomed], "request"))
        except SeizeRefused as refused:
            raise InUse(key=str(key), reason=refused.refused[generation.id].reason) from refused

    async def pin(
        self,
        holder: str,
        key: Key,
        *,
        ttl: float | None = None,
        forever: bool = False,
        generation: Digest | None = None,
        uid: int | None = None,
    ) -> PinOutcome:
        """Pin the current generation, or renew what the holder has; a first pin is a lookup.

        With ``uid`` the pin is that user's, who may have so many.  Raises
        NotResident (a miss), GenerationGone, StateUnwritable or Draining, and
        with ``uid`` Forbidden for a pin of another and TooMany.
        """
        self._context.must_take_new()
        wished = self._context.clock.now()
        try:
            held = self._context.ledger.held(holder, key)
            if not any(generation in (None, pin.generation.digest) for pin in held):
                await self._lookups.present(key)
            outcome = await self._pins.pin(holder, key, ttl, forever, generation, uid)
        except NotResident:
            self._context.counters.miss()
            raise
        if outcome.created:
            waited = self._context.clock.now() - wished
            self._context.counters.hit(outcome.record.manifest.bytes, waited)
            return outcome
        return await self._with_hold(outcome)

    async def _with_hold(self, outcome: PinOutcome) -> PinOutcome:
        """A renewal says whether the model is held by now: a start-up pin goes when it is."""
        id = outcome.record.manifest.id
        if not outcome.record.held:
            await self._sweep.look_for_hold(id)
        generation = self._context.ledger.generation(id)
        if generation is None:
            return outcome
        return replace(outcome, record=self._context.record(generation))

    async def unpin(self, holder: str, key: Key, uid: int | None = None) -> None:
        """End a holder's pins of a key.  Raises NotPinned or StateUnwritable.

        With ``uid`` only pins that this user took.  Raises Forbidden.
        """
        await self._pins.unpin(holder, key, uid)

    async def fetch(self, key: Key, terms: FetchTerms) -> FetchOutcome:
        """A lookup that fetches on a miss, and answers pinned when it names a holder.

        The outcome has no record while the job goes on longer than the caller
        waits.  Raises InvalidRequest, Forbidden, Busy, TooMany, Draining,
        Starting, or what the job failed with: TooLarge, Blocked, DiskFull,
        OriginFailed, OriginTimeout, DigestMismatch, FetchCancelled, IoError.
        """
        self._context.must_take_new()
        return await self.fetching.fetch(key, terms)

    @property
    def fetching(self) -> Fetching:
        """The jobs that bring models here.  Raises Starting."""
        if self._upkeep is None:
            raise Starting
        return self._fetching

    def pins(self) -> list[PinView]:
        """Every pin, and every hold and use that the last sweep saw."""
        return sorted(
            [*self._pins.views(), *self._sweep.views()],
            key=lambda view: (
                str(view.generation.key),
                view.generation.digest,
                view.kind,
                view.holder or "",
            ),
        )

    @property
    def swept_at(self) -> float | None:
        """When the last complete look for holds and uses began, None before the first."""
        return self._sweep.completed_at

    async def accept_loss(self) -> None:
        """See `LostPins.accept`.  Also raises Starting."""
        if self._lost_pins is None:
            raise Starting
        await self._lost_pins.accept()

    # -- What it says of itself --------------------------------------------------

    async def admission(self, size: int, key: Key | None = None) -> Verdict:
        """What would become of an arrival of ``size`` bytes; nothing is done."""
        return await self._admission.verdict(size, key)

    async def snapshot(self) -> Snapshot:
        """Every figure of this instant.  Raises IoError when the filesystem does not answer."""
        return await take_snapshot(
            self._context,
            foreign=self._foreign,
            started_at=self._started_at,
            waiting=self._admission.waiting,
            swept=self.swept_at is not None,
            partials=len(self._context.partials),
            fetching=0 if self._upkeep is None else self._fetching.running,
        )

    async def evictions(
        self, limit: int, after: int | None = None
    ) -> tuple[list[Eviction], int | None]:
        """The journal, oldest first, from after sequence ``after``; and where to go on.

        Without ``after`` it is the newest ``limit`` entries.  Raises Starting or IoError.
        """
        if self._memory is None:
            raise Starting
        last = self._evictions.journal.last_sequence
        since = max(0, last - limit) if after is None else after
        page = await self._memory.journal(limit, since)
        more = bool(page) and page[-1].sequence < last
        return page, page[-1].sequence if more else None

    async def overview(self, wanted: Wanted) -> Overview:
        """What a person wants to see at one look, while starting too."""
        started = self._upkeep is not None
        return await overview(
            self._context,
            wanted,
            uploads=self.uploads.views(),
            fetches=self._fetching.under_way(ARRIVALS_SHOWN) if started else ((), 0),
            failures=self._fetching.last_failures(FAILURES_SHOWN) if started else (),
            evictions=self._evictions.journal.newest_first(),
        )

    def events(self, after: int | None = None) -> AsyncIterator[Event | None]:
        """What happens from ``after`` on; None stands for a while without anything."""
        return self._context.events.listen(after)

    def audit(self) -> Ledger:
        """The books themselves, for a test that checks them; nobody else changes them."""
        return self._context.ledger
