"""Every fetch: joined, in turn, remembered across a restart, and not begun again too soon."""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Final

from weightd.cache.admission import Spares
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.fetching import resting
from weightd.cache.fetching.course import Course
from weightd.cache.fetching.job import Caller, Job, fingerprint_of
from weightd.cache.fetching.shelf import Jobs
from weightd.cache.fetching.terms import FetchTerms, FetchView
from weightd.cache.records import Event
from weightd.errors import (
    Busy,
    DigestMismatch,
    Draining,
    FetchCancelled,
    IoError,
    TooMany,
    WeightdError,
)
from weightd.model import Key
from weightd.origins import parse_reference
from weightd.request_id import REQUEST_ID

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 2.0
"""How long one who does not wait is kept, so that a refusal is answered and not a job."""

WAITING_MAX: Final = 16
"""Jobs that wait for room and are not counted among those that run at once."""

ROOM_SECONDS: Final = 1.0
"""How much longer than its callers wait a job has, to say how it was refused."""


class Fetches:
    """Takes wishes, runs at most `Options.fetch_concurrency` jobs at once."""

    def __init__(self, context: Context, evictions: Evictions, course: Course, jobs: Jobs) -> None:
        self._context = context
        self._evictions = evictions
        self._course = course
        self._jobs = jobs
        self._running: dict[Job, asyncio.Task[None]] = {}
        self._orders = itertools.count(1)
        self._draining = False

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        return len(self._running)

    # -- Wishes --------------------------------------------------------------------

    def live(self, key: Key) -> Job | None:
        """The job that brings ``key`` here, if there is one."""
        return self._jobs.live(key)

    async def join(self, key: Key, terms: FetchTerms) -> tuple[Job, Caller]:
        """Join the job of ``key``, or begin one.

        Raises Busy for another source, TooMany, Draining, and the error of the
        last job while its origin is not to be asked again.
        """
        job = self._jobs.live(key)
        now = asyncio.get_running_loop().time()
        caller = Caller(terms, now + terms.wait)
        if job is not None:
            _must_agree(job, terms)
            job.join(caller)
            job.asked_at = now
            job.changed.notify()
            self._context.counters.fetch_joined += 1
            if job.preload:
                # Asked for, it is a fetch like any other.
                job.preload, job.spares = False, None
                job.place, job.order = 0, next(self._orders)
                self.start_next()
            if terms.holder is None:
                return job, caller
        else:
            job = self._begin(key, terms)
            job.join(caller)
        try:
            await self._jobs.keep(job)
        except IoError as error:
            figures = {"key": str(key), "job": job.id, "reason": error.detail}
            log.warning("a fetch is not written down", extra=figures)
        except asyncio.CancelledError:
            caller.here = False
            raise
        finally:
            # Also for a caller who has left: the job is there, and others may join it.
            self.start_next()
        return job, caller

    def preload(self, key: Key, terms: FetchTerms, place: int, spares: Spares) -> None:
        """Wish for ``key`` when nothing else is to be done, evicting nothing that it ``spares``.

        Of those that wait for their turn the lowest ``place`` is next.  A holder has its pin
        before anything can evict what came.  Raises as `join` does.
        """
        job = self._jobs.live(key)
        if job is None:
            job = self._begin(key, terms)
            job.preload = True
        if job.preload:
            job.place, job.spares = place, spares
            if terms.holder is not None and terms.holder not in job.holders:
                job.callers.append(Caller(terms, until=job.asked_at, here=False))
        self.start_next()

    async def unload(self, wished: Mapping[Key, tuple[str, ...]]) -> None:
        """Give up the preloads that are not ``wished``, or from elsewhere."""
        for job in list(self._jobs.unended()):
            if job.preload and fingerprint_of(wished.get(job.key, ())) != job.fingerprint:
                await self.cancel(job.id, "it is not to be preloaded any more")

    def last(self, key: Key) -> Job | None:
        """The job of ``key`` that ended last."""
        return self._jobs.last(key)

    def _begin(self, key: Key, terms: FetchTerms) -> Job:
        if self._draining:
            raise Draining
        previous = self._jobs.last(key)
        if previous is not None:
            resting.must_be_over(previous, terms, self._context.clock.now())
        options = self._context.options
        if self._jobs.queued >= options.fetches_queued:
            raise TooMany(what="fetches waiting their turn", limit=options.fetches_queued)
        if terms.uid is not None and self._jobs.queued_by(terms.uid) >= options.fetches_per_uid:
            raise TooMany(what="fetches of one user", limit=options.fetches_per_uid)
        job = Job(
            key=key,
            sources=terms.sources,
            digest=terms.digest,
            credential=terms.credential,
            created_at=self._context.clock.now(),
            order=next(self._orders),
            uid=terms.uid,
            asked_at=asyncio.get_running_loop().time(),
        )
        if previous is not None and resting.is_same_wish(previous, terms):
            job.attempts = previous.attempts
        self._jobs.add(job)
        return job

    async def outcome(self, job: Job, caller: Caller) -> None:
        """Wait as long as the caller does; the job may not have ended then.

        Raises what it failed with, or why the caller's pin could not be taken.
        """
        terms = caller.terms
        until = asyncio.get_running_loop().time() + (terms.wait or ANSWER_SECONDS)
        try:
            while not job.ended:
                left = self._left(job, terms, until)
                if left <= 0:
                    return
                await job.changed.wait(left)
        finally:
            caller.here = False
        if job.error is not None:
            raise copy.copy(job.error)
        if caller.failure is not None:
            raise caller.failure
        if terms.digest is not None and job.record is not None:
            actual = job.record.manifest.digest
            if actual != terms.digest:
                raise DigestMismatch(expected=terms.digest, actual=actual, file=str(job.key))

    def _left(self, job: Job, terms: FetchTerms, until: float) -> float:
        """How many seconds more the caller waits for a job.  Raises Draining."""
        queued = job.state == "queued" and job not in self._running
        if terms.wait == 0 and (queued or job.state in ("downloading", "publishing")):
            return 0.0
        if self._draining:
            raise Draining
        left = until - asyncio.get_running_loop().time()
        return left + ROOM_SECONDS if left <= 0 and job.state == "waiting" else left

    # -- Jobs ----------------------------------------------------------------------

    def views(self) -> list[FetchView]:
        """Every job, the newest first."""
        return [job.view() for job in self._jobs.newest_first()]

    def of(self, id: str) -> Job:
        """The job ``id``, which counts as asked about.  Raises UnknownFetch."""
        job = self._jobs.of(id)
        job.asked_at = asyncio.get_running_loop().time()
        return job

    async def cancel(self, id: str, reason: str = "it was deleted") -> None:
        """End a job, and give up what it brought; one that has ended is forgotten.

        One that is being published ends by itself, a moment later.  Raises UnknownFetch.
        """
        job = self._jobs.of(id)
        if job.ended:
            self._evictions.drop_partial(job.key)
            await self._jobs.forget(job)
            return
        job.cancelled = reason
        task = self._running.get(job)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if not job.ended:
            await self._end(job, None)
        self._evictions.drop_partial(job.key)

    async def events(self, id: str) -> AsyncIterator[Event | None]:
        """The job's progress as it goes, None when all is quiet, a last one ``end``."""
        job = self.of(id)
        with job.followed():
            for seq in itertools.count(1):
                job.asked_at = asyncio.get_running_loop().time()
                data: dict[str, object] = {"job": job.view()}
                type = "end" if job.ended or self._draining else "progress"
                if type == "end":
                    data["outcome"] = job.state if job.ended else "draining"
                yield Event(seq, type, self._context.clock.now(), data)
                if type == "end":
                    return
                while not await job.changed.wait(self._context.options.heartbeat):
                    yield None

    def resume(self) -> None:
        """Go on with what an earlier run left; called once the cache is ready."""
        now = asyncio.get_running_loop().time()
        for job in self._jobs.unended():
            job.order = next(self._orders)
            # Whoever asked could not ask again meanwhile.
            job.asked_at = now
        self.start_next()

    def park(self) -> None:
        """Stop every job where it is, for the next start to go on."""
        self._draining = True
        for task in self._running.values():
            task.cancel()
        for job in self._jobs.newest_first():
            job.changed.notify()

    def start_next(self) -> None:
        """Start as many as may run: those waited for first, preloads last."""
        while not self._draining and self._may_start():
            # A user at the replica door leaves room for the others.
            shares: Counter[int | None] = Counter(job.uid for job in self._running)
            shares[None] = 0
            share = max(1, self._context.options.fetch_concurrency // 2)
            # One preload at a time: so they have room in their order, and keep nobody waiting.
            preloading = any(job.preload for job in self._running)
            queued = [
                job
                for job in self._jobs.unended()
                if job not in self._running
                and job.cancelled is None
                and not (job.preload and preloading)
                and shares[job.uid] < share
            ]
            if not queued:
                return
            job = min(queued, key=Job.turn)
            task = self._context.tasks.spawn(self._run(job), f"fetch {job.key}")
            self._running[job] = task
            # Not in the task itself: cancelled before its first step, it has none.
            task.add_done_callback(functools.partial(self._over, job))

    def _may_start(self) -> bool:
        """Whether one more may run: those that wait for room are in nobody's way."""
        waiting = sum(job.state == "waiting" for job in self._running)
        at_once = self._context.options.fetch_concurrency
        return len(self._running) - min(waiting, WAITING_MAX) < at_once

    async def tidy(self) -> None:
        """Forget what is over, give up what nobody wants.  Raises IoError."""
        self.start_next()
        options = self._context.options
        now, loop_now = self._context.clock.now(), asyncio.get_running_loop().time()
        for job in self._jobs.newest_first():
            unwanted = loop_now - job.asked_at > options.fetch_unwanted
            if not job.ended and unwanted and not job.waited_for and not job.preload:
                await self.cancel(job.id, "nobody has asked for it for a while")
            kept = self._context.partials.of(job.key) is not None
            if job.ended and not kept and now - (job.ended_at or now) > options.fetch_kept:
                await self._jobs.forget(job)
        await self._jobs.tidy()
        for partial in self._context.partials:
            key, age = partial.stored.key, now - partial.stored.at
            if age > options.partial_ttl and self._jobs.live(key) is None:
                figures = {"key": str(key), "bytes": partial.stored.bytes, "age_seconds": age}
                log.info("what was fetched has expired", extra=figures)
                self._evictions.drop_partial(key)

    # -- Inside --------------------------------------------------------------------

    async def _run(self, job: Job) -> None:
        """One job to its end, whatever that is."""
        # It may be its turn since another's is over, whose request it is not.
        REQUEST_ID.set(job.request)
        job.started_at = self._context.clock.now()
        self._tell("fetching", job)
        error = await self._ended_with(job)
        if error is not None or job.state != "queued":
            await self._end(job, error)

    def _over(self, job: Job, _: asyncio.Task[None]) -> None:
        """The job runs no more; another may."""
        del self._running[job]
        stored = self._context.partials.stored(job.key)
        if stored is not None and self._jobs.live(job.key) is None:
            self._context.partials.noted(stored, b"")
        job.changed.notify()
        self.start_next()

    async def _recall(self, key: Key) -> None:
        """Have the note of what is here of ``key`` at hand; without one it is given up."""
        stored = self._context.partials.stored(key)
        if stored is None or stored.note:
            return
        try:
            note = await self._context.workers.disk(self._context.store.note_of, stored)
        except IoError as error:
            figures = {"key": str(key), "reason": error.detail}
            log.warning("what was fetched cannot be gone on with", extra=figures)
            self._evictions.drop_partial(key)
        else:
            self._context.partials.noted(stored, note)

    async def _ended_with(self, job: Job) -> WeightdError | None:
        """Run the job; what it failed with.  Parked, it is queued again."""
        kind = parse_reference(job.source).kind
        counters = self._context.counters
        try:
            await self._recall(job.key)
            result = await self._course.run(job)
        except WeightdError as error:
            kind = parse_reference(job.source).kind
            counters.fetches[kind, "failed"] += 1
            return error
        except asyncio.CancelledError:
            if job.result is None and job.cancelled is None:
                job.enter("queued")
                return None
            if job.result is None:
                counters.fetches[kind, "cancelled"] += 1
                return FetchCancelled(key=str(job.key), reason=job.cancelled or "")
            # It was here already, and nothing takes it back.
            result = job.result
        except Exception:
            # It must end all the same: a job that has not is begun again at once.
            log.exception("a fetch failed; this is a bug", extra={"key": str(job.key)})
            counters.fetches[kind, "failed"] += 1
            return IoError(call=f"the fetch of {job.key}", error="weightd's log has the traceback")
        counters.fetches[parse_reference(job.source).kind, result] += 1
        counters.fetch_seconds.observe(self._context.clock.now() - (job.started_at or 0.0))
        job.state = "done"
        return None

    async def _end(self, job: Job, error: WeightdError | None) -> None:
        now = self._context.clock.now()
        if job.cancelled is not None and error is None and job.state != "done":
            error = FetchCancelled(key=str(job.key), reason=job.cancelled)
        job.error, job.ended_at = error, now
        if error is None:
            job.attempts, job.retry_at = 0, None
            job.enter("done")
            self._tell_end("fetched", job)
        elif isinstance(error, FetchCancelled):
            job.enter("cancelled")
            self._tell_end("fetch-cancelled", job)
        else:
            resting.begin(job, error, now)
            job.enter("failed")
            self._tell_end("fetch-failed", job)
        job.changed.notify()
        await self._jobs.ended(job)

    def _tell(self, type: str, job: Job, **figures: object) -> None:
        self._context.events.tell(
            type,
            key=str(job.key),
            job=job.id,
            source=parse_reference(job.source).text,
            code=None if job.error is None else job.error.code,
            **figures,
        )

    def _tell_end(self, type: str, job: Job) -> None:
        """Tell how it ended, and what it brought in how many seconds and bytes a second."""
        took = max(0.0, (job.ended_at or 0.0) - (job.started_at or job.ended_at or 0.0))
        brought = max(0, job.bytes_done - job.bytes_reused)
        figures: dict[str, object] = {
            "bytes": job.bytes_done,
            "bytes_reused": job.bytes_reused,
            "seconds": round(took, 3),
            "rate": round(brought / took) if took > 0 else None,
        }
        if job.error is not None:
            figures |= {"reason": job.error.detail, "attempts": job.attempts}
        self._tell(type, job, **figures)


def _must_agree(job: Job, terms: FetchTerms) -> None:
    """Raise Busy when the caller wants the key from elsewhere."""
    same = job.fingerprint == fingerprint_of(terms.sources)
    agrees = same and job.credential == terms.credential
    if not agrees or (terms.digest not in (None, job.digest) and job.digest is not None):
        source = parse_reference(job.source).text
        raise Busy(key=str(job.key), job=job.id, source=source)
