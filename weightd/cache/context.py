"""What the rooms of the cache share: the books, the disk, and what is known of both.

The ledger is changed only on the event loop's thread, and never across an
await: between two awaits it is decided and booked at once, so no lock is needed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from weightd.cache.clock import Clock
from weightd.cache.counters import Counters
from weightd.cache.events import EventLog
from weightd.cache.fetching.partials import Partials
from weightd.cache.health import Health
from weightd.cache.records import Record, State
from weightd.cache.refusals import Refusals
from weightd.cache.tasks import Rounds, Signal, Tasks
from weightd.cache.underway import UnderWay
from weightd.cache.workers import Workers
from weightd.errors import DiskFull, Draining, IoError
from weightd.failpoints import Reach
from weightd.ledger import Generation, Ledger, PolicyName, Room, disk_full
from weightd.model import GenerationId, Key, Manifest
from weightd.origins.contract import Patience, Trust
from weightd.store import Filesystem, NoSpace, Process, Store, Use

NEVER: Final = float("-inf")

ARRIVAL_BLOCKS: Final = 4
"""Blocks that an arrival takes beside its content: a manifest and a few directories."""

PAUSE: Final = 0.02
"""Seconds at least between two batches of victims, in which arrivals and lookups go on."""


@dataclass(frozen=True, slots=True)
class Options:
    """What can be tuned; times in seconds.

    ``check_age`` is how old a check of a model's files may be for a lookup to
    trust it; ``check_interval`` is between two passes over all models;
    ``flush_interval`` between two writes of recency; ``sweep_interval`` is
    between two looks for use that the kernel knows, ``hurry_interval`` the same
    for what is in the way of somebody who waits;
    ``trim_interval`` is between two looks whether there is too much on the
    disk, ``look_apart`` between the two that must agree before anything goes for it;
    ``seen_late`` is how late a filesystem may show as free what was unlinked;
    ``overtake`` is how long those who wait are passed by who comes and fits at once;
    ``unlink_retry`` is how long what could not be unlinked is let be;
    ``grant_timeout`` is how long an arrival waits for its victims' bytes to leave the disk.
    ``orphan_grace`` is how long a pin from before a reboot of the node stays;
    ``pins_per_uid`` is how many pins one user may have at the replica door.
    ``heartbeat`` is how long an event stream stays silent at most.
    ``settle_timeout`` is how long a request waits for an eviction to be decided on disk,
    ``pin_timeout`` for a pin to be on stable storage, ``answer_timeout`` a status for
    the filesystem, ``look_timeout`` a decision for the same, which on some kinds has
    to commit first: a disk that hangs is answered as one that fails.
    ``hold_timeout`` is how long a renewal waits to see whether the model is held by now.
    ``loop_pause`` is how long a loop that failed unexpectedly is let be.
    ``fetch_concurrency`` fetches run at once, ``fetches_queued`` more may wait their turn,
    ``fetches_per_uid`` of them begun by one user at the replica door;
    together they take ``fetch_bandwidth`` bytes a second (None: what they can).
    ``fetch_ttl`` is the lease of a fetch's holder who names none; ``fetch_kept`` is how long a
    job is remembered after its end, ``fetch_unwanted`` how long one goes on that no caller waits
    for or asks about, and ``partial_ttl`` how long what it left unfinished is kept.
    ``verifications`` may wait for their turn, and one whose disk gives nothing ends after
    ``read_timeout``.
    ``warmings`` may wait for theirs, likewise.
    ``uploads`` may be under way at once; one of which nothing was written ends after
    ``upload_begun_within``, one that does not grow after ``upload_ttl``, and each is looked at
    every ``upload_interval``.
    """

    transfers: int = 32
    waiting: int = 256
    check_age: float = 5.0
    check_interval: float = 600.0
    flush_interval: float = 3.0
    sweep_interval: float = 2.0
    hurry_interval: float = 0.5
    trim_interval: float = 5.0
    look_apart: float = 2.0
    seen_late: float = 1.0
    overtake: float = 3.0
    unlink_retry: float = 5.0
    grant_timeout: float = 300.0
    heartbeat: float = 10.0
    accept_loss_after: float = 3600.0
    orphan_grace: float = 600.0
    settle_timeout: float = 60.0
    pin_timeout: float = 30.0
    hold_timeout: float = 2.0
    answer_timeout: float = 10.0
    look_timeout: float = 60.0
    loop_pause: float = 5.0
    policy: PolicyName = "lru"
    pins_per_uid: int = 1024
    fetch_concurrency: int = 4
    fetches_queued: int = 1024
    fetches_per_uid: int = 64
    fetch_bandwidth: int | None = None
    fetch_ttl: float = 600.0
    fetch_kept: float = 3600.0
    fetch_unwanted: float = 3600.0
    partial_ttl: float = 86400.0
    verifications: int = 16
    warmings: int = 16
    read_timeout: float = 300.0
    uploads: int = 64
    upload_begun_within: float = 600.0
    upload_ttl: float = 3600.0
    upload_interval: float = 1.0
    trust: Trust = field(default_factory=Trust)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A use as it is known: since when it is, and who is behind it, as far as can be seen.

    Each of the ``processes`` with when it was first seen: of a hold all of them, of a use one.
    """

    use: Use
    since: float
    processes: Mapping[Process, float] = field(default_factory=dict)

    def by(self, processes: Iterable[Process], now: float) -> Sighting:
        """The same by these; the first that is seen was there from the beginning."""
        began = now if self.processes else self.since
        return replace(self, processes={one: self.processes.get(one, began) for one in processes})


@dataclass(slots=True)
class Model:
    """What the cache knows of a generation beside the ledger's figures."""

    manifest: Manifest
    checked_at: float = NEVER
    path: Path | None = None
    """Where it is handed out, once an answer had to say so, ..."""
    relative_path: str = ""
    """... and the same below the root."""


class Progress:
    """Bytes of content ever written, told by the threads that write them."""

    def __init__(self) -> None:
        self.total = 0
        self._telling = threading.Lock()

    def wrote(self, size: int) -> None:
        with self._telling:
            self.total += size


class Seen(NamedTuple):
    """What the filesystem said, and how many bytes of content had been written before it did."""

    filesystem: Filesystem
    written: int


@dataclass(slots=True)
class Context:
    """One cache's parts, made by `WeightCache` and shared by its rooms.

    ``changed`` is notified whenever the ledger changed in a way that somebody
    may wait for: bytes freed, a victim settled, a pin gone, a publication done.
    ``publishing`` are the keys whose current generation is being changed on
    disk, by one task each.  ``sightings`` are the uses that the kernel reports,
    ``partials`` what unfinished fetches left.
    """

    store: Store
    ledger: Ledger
    clock: Clock
    options: Options
    min_free: int
    reach: Reach
    events: EventLog
    workers: Workers
    partials: Partials
    state: State = "starting"
    takes_new: bool = True
    counters: Counters = field(default_factory=Counters)
    tasks: Tasks = field(default_factory=Tasks)
    changed: Signal = field(default_factory=Signal)
    models: dict[GenerationId, Model] = field(default_factory=dict)
    publishing: set[Key] = field(default_factory=set)
    sightings: dict[GenerationId, Sighting] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    health: Health = field(default_factory=Health)
    under_way: UnderWay = field(default_factory=UnderWay)
    unwritable: str | None = None
    """Why the last change of a pin could not be written down, if it could not."""
    refusals: Refusals = field(init=False)
    _looks: Rounds[Seen] = field(init=False)
    _deciding: set[asyncio.Future[None]] = field(default_factory=set)
    """Those who saw nothing settle, and look at the filesystem before they decide."""

    def __post_init__(self) -> None:
        self.refusals = Refusals(self.clock.now)
        self._looks = Rounds(self.tasks, "look", self._look)

    def must_take_new(self) -> None:
        """Raise Draining once nothing new is taken any more."""
        if not self.takes_new:
            raise Draining

    def record(self, generation: Generation) -> Record:
        """A generation as answers show it."""
        id = generation.id
        model = self.models[id]
        if model.path is None:
            model.path = self.store.path_of(id)
            model.relative_path = self.store.relative_path_of(id)
        return Record(
            manifest=model.manifest,
            current=self.ledger.current(id.key) is generation,
            path=model.path,
            relative_path=model.relative_path,
            pins=len(generation.pins),
            held=self._held(id),
            last_used_at=generation.last_used,
            hits=generation.hits,
        )

    def _held(self, id: GenerationId) -> bool:
        seen = self.sightings.get(id)
        return seen is not None and seen.use.kind == "hold"

    async def settled(self, key: Key) -> None:
        """Wait while a generation of ``key`` is named as a victim and may still come back.

        It takes as long as a seizure, so that no lookup answers a miss for a
        model that an eviction then leaves where it is.
        """
        if self.ledger.leaving(key):
            await self._until(lambda: not self.ledger.leaving(key))

    async def nothing_settles(self) -> None:
        """Wait until no generation is named as a victim that may still come back."""
        await self._until(lambda: not self.ledger.settling)

    async def _until(self, settled: Callable[[], bool]) -> None:
        seconds = self.options.settle_timeout
        try:
            async with asyncio.timeout(seconds):
                while not settled():
                    await self.changed.wait()
        except TimeoutError:
            raise IoError(
                call="move of evicted models to doomed/",
                error=f"the disk did not do it within {seconds:g} s",
            ) from None

    async def room(self) -> Room:
        """What the filesystem has, and how much of it others use.

        Raises IoError, also when the disk hangs.
        """
        seen, before = await self._see()
        usage = self.ledger.usage()
        return Room(
            free=seen.free,
            min_free=self.min_free,
            others=max(0, seen.total - seen.free - usage.used),
            overhead=(usage.arrivals + 1) * ARRIVAL_BLOCKS * self.store.block,
            # Not unwritten any more, and it may be missing in the look.
            unsure=self.progress.total - before,
        )

    async def _see(self) -> Seen:
        seconds = self.options.look_timeout
        try:
            async with asyncio.timeout(seconds):
                # A commit may take seconds: one at a time, and no lookup is to wait behind it.
                return await (self._looks.next() if self.store.must_settle else self._look())
        except TimeoutError:
            raise IoError(
                call=f"look at the filesystem of {self.store.root}",
                error=f"no answer within {seconds:g} s",
            ) from None

    async def _look(self) -> Seen:
        written = self.progress.total
        ask = self.workers.settle if self.store.must_settle else self.workers.disk
        return Seen(await ask(self.store.filesystem, settled=True), written)

    async def settled_room(self) -> Room:
        """The same, at an instant at which no victim may still come back.

        Until then its bytes are taken for free, and a promise made of them
        could not be kept.
        """
        while True:
            await self.nothing_settles()
            decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._deciding.add(decided)
            try:
                room = await self.room()
                # Figures from before a seizure would take its victims' bytes for used or for free.
                if not self.ledger.settling:
                    return room
            finally:
                self._deciding.discard(decided)
                # Who waits for this goes on after the caller has acted on what is returned.
                decided.set_result(None)

    async def others_decide(self) -> None:
        """Between two batches of victims: let those decide who waited until nothing settles.

        However slow the filesystem tells what it has, or they would wait for the last batch.
        """
        await asyncio.sleep(PAUSE)
        if self._deciding:
            await asyncio.wait(set(self._deciding), timeout=self.options.look_timeout)

    async def no_space(self, size: int, error: NoSpace) -> DiskFull:
        """What a full disk comes to for a caller who wanted ``size`` bytes.  Raises IoError."""
        full = disk_full(size, await self.room())
        full.add_note(str(error))
        return full
