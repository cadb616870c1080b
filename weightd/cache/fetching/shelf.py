"""The jobs there are: by id, by key, and as the history remembers them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from weightd.cache.context import Context
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.stored import decode_job, encode_job
from weightd.errors import OriginFailed, UnknownFetch
from weightd.model import Key
from weightd.store import HistoryDatabase, StoredFetch

log = logging.getLogger(__name__)


class Jobs:
    """Every job until it is forgotten; at most one of a key is not ended."""

    def __init__(self, context: Context, database: HistoryDatabase) -> None:
        self._context = context
        self._database = database
        self._jobs: dict[str, Job] = {}
        self._live: dict[Key, Job] = {}
        self._last: dict[Key, Job] = {}

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

    def newest_first(self) -> list[Job]:
        """Every job."""
        return sorted(self._jobs.values(), key=lambda job: (-job.created_at, -job.order))

    def add(self, job: Job) -> None:
        """A job begins."""
        self._jobs[job.id] = job
        self._live[job.key] = job

    def ended(self, job: Job) -> None:
        """A job has ended."""
        if self._live.get(job.key) is job:
            del self._live[job.key]
        self._last[job.key] = job

    async def keep(self, job: Job) -> None:
        """Write a job down.  Raises IoError."""
        stored = StoredFetch(job.id, str(job.key), encode_job(job), job.ended_at)
        await self._context.workers.housekeep(self._database.put_fetch, stored)

    async def forget(self, job: Job) -> None:
        """Know nothing of an ended job any more.  Raises IoError."""
        self._jobs.pop(job.id, None)
        if self._last.get(job.key) is job:
            del self._last[job.key]
        await self._context.workers.housekeep(self._database.forget_fetches, [job.id])

    async def load(self) -> None:
        """Know what an earlier run knew.  Raises IoError."""
        now = self._context.clock.now()
        for stored in await self._context.workers.housekeep(self._database.fetches):
            try:
                job = decode_job(stored.id, stored.key, stored.record, 0, 0.0)
            except (ValueError, KeyError, TypeError) as error:
                log.warning("fetch %s of an earlier run is not understood: %r", stored.id, error)
                continue
            self._jobs[job.id] = job
            if not job.ended and job.secret:
                job.state, job.ended_at, job.error = "failed", now, _forgotten(job)
            if job.ended:
                last = self._last.get(job.key)
                if last is None or (last.ended_at or 0.0) < (job.ended_at or now):
                    self._last[job.key] = job
            else:
                self._live[job.key] = job


def _forgotten(job: Job) -> OriginFailed:
    words = "its address carries a secret, which is not kept across a restart; ask again"
    return OriginFailed(job.source, words, retryable=True)
