"""The jobs there are: by id, by key, and as the history remembers them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final

from weightd.cache.context import Context
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.stored import decode_job, encode_job
from weightd.errors import IoError, OriginFailed, UnknownFetch
from weightd.model import Key
from weightd.store import HistoryDatabase, StoredFetch

log = logging.getLogger(__name__)

ENDED_MAX: Final = 1000
"""So many ended jobs are remembered, those that ended last."""

ENDED_OF_ONE_USER_MAX: Final = 64
"""Of them so many that one user began at the replica door."""

FORGET_AT_ONCE: Final = 64
"""What is over is taken out of the history by so many at a time."""


class Jobs:
    """Every job until it is forgotten; at most one of a key is not ended.

    Of the ended ones only so many are remembered, see `ENDED_MAX`.
    """

    def __init__(self, context: Context, database: HistoryDatabase) -> None:
        self._context = context
        self._database = database
        self._jobs: dict[str, Job] = {}
        self._live: dict[Key, Job] = {}
        self._last: dict[Key, Job] = {}
        self._ended: dict[str, Job] = {}
        """Those that have ended, the one that did first before all others."""
        self._ended_of: Counter[int | None] = Counter()
        self._forgotten: list[str] = []
        """Known no more, and still in the history."""

    def live(self, key: Key) -> Job | None:
        """The job of ``key`` that has not ended."""
        return self._live.get(key)

    def last(self, key: Key) -> Job | None:
        """The job of ``key`` that ended last."""
        return self._last.get(key)

    def of(self, id: str) -> Job:
        """Raises UnknownFetch."""
        job = self._jobs.get(id)
        if job is None:
            raise UnknownFetch(job=id)
        return job

    @property
    def queued(self) -> int:
        """How many have not ended."""
        return len(self._live)

    def queued_by(self, uid: int) -> int:
        """How many of them the user ``uid`` began."""
        return sum(job.uid == uid for job in self._live.values())

    def unended(self) -> Iterable[Job]:
        """Those that have not ended, in the order in which they were added."""
        return self._live.values()

    def live_first_running(self, most: int) -> list[Job]:
        """Those that have not ended, ``most`` at most, and of the queued ones the first."""
        waiting = [job for job in self._live.values() if job.state == "queued"]
        running = [job for job in self._live.values() if job.state != "queued"]
        return [*running, *sorted(waiting, key=Job.turn)][:most]

    def last_failed(self, most: int) -> list[Job]:
        """Those that failed last, the last first, but for keys that were fetched or begun since."""
        failed = (
            job
            for job in reversed(self._ended.values())
            if job.state == "failed" and self._last.get(job.key) is job
            if job.key not in self._live
        )
        return list(islice(failed, most))

    def newest_first(self) -> list[Job]:
        """Every job."""
        return sorted(self._jobs.values(), key=lambda job: (-job.created_at, -job.order))

    def add(self, job: Job) -> None:
        """A job begins."""
        self._jobs[job.id] = job
        self._live[job.key] = job

    async def ended(self, job: Job) -> None:
        """A job has ended, which is written down if it can be; for it older ones are forgotten."""
        self._end(job)
        try:
            await self.keep(job)
            await self.tidy(FORGET_AT_ONCE)
        except IoError as error:
            figures = {"key": str(job.key), "job": job.id, "reason": error.detail}
            log.warning("the end of a fetch is not written down", extra=figures)

    async def keep(self, job: Job) -> None:
        """Write a job down.  Raises IoError."""
        stored = StoredFetch(job.id, str(job.key), encode_job(job), job.ended_at)
        await self._context.workers.housekeep(self._database.put_fetch, stored)

    async def forget(self, job: Job) -> None:
        """Know nothing of an ended job any more.  Raises IoError."""
        self._drop(job)
        await self.tidy()

    async def tidy(self, at_least: int = 1) -> None:
        """Take what was forgotten out of the history, once it is so many.  Raises IoError."""
        if len(self._forgotten) >= at_least:
            # What fails is left to the next start, which forgets it as well.
            ids, self._forgotten = self._forgotten, []
            await self._context.workers.housekeep(self._database.forget_fetches, ids)

    def _end(self, job: Job) -> None:
        if self._live.get(job.key) is job:
            del self._live[job.key]
        self._last[job.key] = job
        self._ended[job.id] = job
        self._ended_of[job.uid] += 1
        if job.uid is not None and self._ended_of[job.uid] > ENDED_OF_ONE_USER_MAX:
            self._drop(next(one for one in self._ended.values() if one.uid == job.uid))
        if len(self._ended) > ENDED_MAX:
            self._drop(next(iter(self._ended.values())))

    def _drop(self, job: Job) -> None:
        """Know nothing of an ended job any more, but for the history."""
        self._jobs.pop(job.id, None)
        if self._ended.pop(job.id, None) is not None:
            self._ended_of[job.uid] -= 1
            if not self._ended_of[job.uid]:
                del self._ended_of[job.uid]
        if self._last.get(job.key) is job:
            del self._last[job.key]
        self._forgotten.append(job.id)

    async def load(self) -> None:
        """Know what an earlier run knew.  Raises IoError."""
        now = self._context.clock.now()
        ended = []
        for stored in await self._context.workers.housekeep(self._database.fetches):
            try:
                job = decode_job(stored.id, stored.key, stored.record, 0, 0.0)
            except (ValueError, KeyError, TypeError) as error:
                figures = {"job": stored.id, "reason": repr(error)}
                log.warning("a fetch of an earlier run is not understood", extra=figures)
                continue
            self._jobs[job.id] = job
            if not job.ended and job.secret:
                job.state, job.ended_at, job.error = "failed", now, _forgotten(job)
            if job.ended:
                ended.append(job)
            else:
                self._live[job.key] = job
        for job in sorted(ended, key=lambda job: now if job.ended_at is None else job.ended_at):
            self._end(job)
        await self.tidy()


def _forgotten(job: Job) -> OriginFailed:
    words = "its address carries a secret, which is not kept across a restart; ask again"
    return OriginFailed(job.source, words, retryable=True)
