"""The fetching side of the cache as its callers see it: a hit at once, or a job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from weightd.cache.admission import Admission
from weightd.cache.checks import Checks
from weightd.cache.context import Context, Options
from weightd.cache.evictions import Evictions
from weightd.cache.fetching.bandwidth import Bandwidth
from weightd.cache.fetching.course import NOTHING_ALLOWED, Course, lease_of
from weightd.cache.fetching.fetches import Fetches
from weightd.cache.fetching.job import Caller, Job
from weightd.cache.fetching.preload import Preload
from weightd.cache.fetching.shelf import Jobs
from weightd.cache.fetching.terms import FetchOutcome, FetchTerms, FetchView, Wish
from weightd.cache.lookups import Lookups
from weightd.cache.pinning import Pins
from weightd.cache.publishing import Publications
from weightd.cache.records import Event, Record
from weightd.errors import ADMIN_SOCKET, Forbidden, GenerationGone, InvalidRequest, NotResident
from weightd.model import Key
from weightd.origins import check_allowed, check_credential, parse_reference
from weightd.store import HistoryDatabase


class Fetching:
    """Looks up first; what is not here becomes a job, or joins the one there is."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        evictions: Evictions,
        checks: Checks,
        publications: Publications,
        lookups: Lookups,
        pins: Pins,
        database: HistoryDatabase,
    ) -> None:
        self._context = context
        self._checks = checks
        self._lookups = lookups
        self._pins = pins
        self.bandwidth = Bandwidth(context.options.fetch_bandwidth)
        self._jobs = Jobs(context, database)
        course = Course(context, admission, evictions, checks, publications, pins, self.bandwidth)
        self._fetches = Fetches(context, evictions, course, self._jobs)
        self._preload = Preload(context, evictions, self._fetches, pins)

    async def load(self) -> None:
        """Know what an earlier run knew.  Raises IoError."""
        await self._jobs.load()

    def begin(self) -> None:
        """Go on with what an earlier run left."""
        self._fetches.resume()

    def park(self) -> None:
        """Stop every job where it is; the next start goes on."""
        self._fetches.park()

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        return self._fetches.running

    async def tidy(self) -> None:
        """Forget what is over, and see to the preloads.  Raises IoError."""
        await self._fetches.tidy()
        await self._preload.tidy()

    def live_by(self, options: Options) -> None:
        """Change bandwidth, trust, concurrency and how long partials are kept.

        What has been opened already stays open.
        """
        self._context.options = options
        self.bandwidth.set(options.fetch_bandwidth)
        self._fetches.start_next()

    async def wish(self, wishes: Sequence[Wish]) -> None:
        """Replace the list of what is to be here."""
        await self._preload.wish(wishes)

    async def fetch(self, key: Key, terms: FetchTerms) -> FetchOutcome:
        """A lookup that fetches on a miss; see `WeightCache.fetch`."""
        wished = self._context.clock.now()
        await self._must_be_allowed(terms)
        while True:
            here = None if terms.revalidate else await self._here(key, terms)
            if here is not None:
                self._context.counters.hit(here.manifest.bytes, self._context.clock.now() - wished)
                return FetchOutcome(here, None)
            job = self._fetches.live(key)
            if job is None or job.result is None:
                break
            # It pins for nobody any more.
            await job.over()
        self._must_not_replace(key, terms)
        if job is None or terms.holder is None or terms.holder not in job.holders:
            self._context.counters.miss()
        job, caller = await self._fetches.join(key, terms)
        await self._fetches.outcome(job, caller)
        if not job.ended:
            return FetchOutcome(None, job.view())
        self._context.counters.fetched_seconds.observe(self._context.clock.now() - wished)
        return FetchOutcome(self._record(job, caller), job.view())

    def _must_not_replace(self, key: Key, terms: FetchTerms) -> None:
        """Raise Forbidden for a user who would put something from elsewhere in a model's place."""
        current = self._context.ledger.current(key)
        if terms.uid is None or current is None:
            return
        source = self._context.models[current.id].manifest.source
        if source not in {parse_reference(one).text for one in terms.sources}:
            reason = f"what is here of {key} is not from that source"
            raise Forbidden(reason=reason, door=ADMIN_SOCKET)

    async def _must_be_allowed(self, terms: FetchTerms) -> None:
        """Raise InvalidRequest or Forbidden for a source or credential that may not be used."""
        if not terms.sources:
            raise InvalidRequest(what="source", reason="it names none")
        trust = self._context.options.trust
        if terms.uid is not None and not trust.allowed:
            raise Forbidden(reason=NOTHING_ALLOWED, door=ADMIN_SOCKET)
        references = [parse_reference(source) for source in terms.sources]
        for reference in references:
            # A file:// may have to be resolved on a disk.
            await self._context.workers.disk(check_allowed, reference, trust)
        if terms.credential is not None:
            check_credential(terms.credential, references, trust, anybody=terms.uid is not None)

    async def _here(self, key: Key, terms: FetchTerms) -> Record | None:
        """What is here of what is wished, used and, for a holder, pinned; None for a miss."""
        generation = await self._checks.current(key)
        if generation is None or terms.digest not in (None, generation.id.digest):
            return None
        if terms.holder is None:
            self._context.ledger.use(key, self._context.clock.now())
            return self._context.record(generation)
        ttl, forever = lease_of(self._context, terms, key)
        try:
            outcome = await self._pins.pin(terms.holder, key, ttl, forever, terms.digest, terms.uid)
        except (NotResident, GenerationGone):
            return None
        return outcome.record

    def _record(self, job: Job, caller: Caller) -> Record | None:
        """What the caller has pinned, or the model as it is answered by now; else as it came."""
        record = caller.record or job.record
        if record is None:
            return None
        ledger = self._context.ledger
        generation = ledger.generation(record.manifest.id)
        if caller.record is None and caller.terms.digest is None:
            generation = ledger.current(job.key) or generation
        return record if generation is None else self._context.record(generation)

    # -- Jobs ------------------------------------------------------------------------

    def views(self) -> list[FetchView]:
        """Every job, the newest first."""
        return self._fetches.views()

    def under_way(self, most: int) -> tuple[list[FetchView], int]:
        """Some of the jobs that have not ended, and how many there are."""
        return [job.view() for job in self._jobs.live_first_running(most)], self._jobs.queued

    def last_failures(self, most: int) -> list[FetchView]:
        """The keys that could not be fetched last, the last first."""
        return [job.view() for job in self._jobs.last_failed(most)]

    def view(self, id: str) -> FetchView:
        """One job.  Raises UnknownFetch."""
        return self._fetches.of(id).view()

    async def cancel(self, id: str) -> None:
        """End a job, or forget one that has ended.  Raises UnknownFetch."""
        await self._fetches.cancel(id)

    def events(self, id: str) -> AsyncIterator[Event | None]:
        """A job's progress.  Raises UnknownFetch."""
        self._fetches.of(id)
        return self._fetches.events(id)
