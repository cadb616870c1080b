"""One job from its listing to a pinned model.

List, plan, admit, download, publish, pin.  Each source in turn may bring what
the one before it left undone; what is here stays here between them, and after
the last of them it is parked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Final

from weightd.cache.admission import Admission, Need, Want
from weightd.cache.checks import Checks
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.fetching import listed
from weightd.cache.fetching.bandwidth import Bandwidth
from weightd.cache.fetching.fill import LinkGone, filling
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.listed import Plan
from weightd.cache.fetching.partials import Partial
from weightd.cache.fetching.stored import decode_note
from weightd.cache.fetching.terms import FetchResult, FetchTerms
from weightd.cache.pinning import Pins
from weightd.cache.publishing import Origination, Publications
from weightd.cache.records import Record
from weightd.cache.tasks import completed, ended
from weightd.errors import (
    ADMIN_SOCKET,
    Blocked,
    DigestMismatch,
    DiskFull,
    Forbidden,
    GenerationGone,
    OriginChanged,
    OriginFailed,
    OriginTimeout,
    TooLarge,
    WeightdError,
)
from weightd.ledger import Generation, Reservation
from weightd.model import Digest, FileEntry, GenerationId, Key, Manifest, content_digest
from weightd.origins import Origin, check_credential, open_origin, parse_reference
from weightd.origins.contract import Listing
from weightd.store import Ingest, NoSpace

NOTHING_ALLOWED: Final = "no origin is allowed here, since allow_origins lists none"

log = logging.getLogger(__name__)


class Course:
    """Runs jobs; holds nothing of any one of them."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        evictions: Evictions,
        checks: Checks,
        publications: Publications,
        pins: Pins,
        bandwidth: Bandwidth,
    ) -> None:
        self._context = context
        self._admission = admission
        self._evictions = evictions
        self._checks = checks
        self._publications = publications
        self._pins = pins
        self._bandwidth = bandwidth

    async def run(self, job: Job) -> FetchResult:
        """Bring the job to its end, from the first source that can.

        Raises the error of the last source, or what keeps the model from
        fitting here.  `Job.record` is set, and every holder's pin stands, when
        it answers.
        """
        first: Listing | None = None
        for source in job.sources:
            job.source = source
            try:
                async with self._origin(job, source) as origin:
                    held = first
                    listing = await self._listing(job, origin, held)
                    first = first or listing
                    return await self._from(job, origin, listing, held)
            except (OriginFailed, OriginTimeout, DigestMismatch) as error:
                if source is job.sources[-1]:
                    raise
                figures = {"key": str(job.key), "job": job.id, "code": error.code}
                figures["reason"] = error.detail
                log.warning("a fetch goes on to its next source", extra=figures)
        raise AssertionError("a job has at least one source")

    @asynccontextmanager
    async def _origin(self, job: Job, source: str) -> AsyncIterator[Origin]:
        options = self._context.options
        # As when it was asked for, whatever the settings said then.
        if job.uid is not None and not options.trust.allowed:
            raise Forbidden(reason=NOTHING_ALLOWED, door=ADMIN_SOCKET)
        if job.credential is not None:
            references = [parse_reference(one) for one in job.sources]
            anybody = job.uid is not None
            check_credential(job.credential, references, options.trust, anybody=anybody)
        opened = self._context.workers.fetch(
            open_origin,
            parse_reference(source),
            trust=options.trust,
            patience=options.patience,
            credential=job.credential,
        )
        cancelled = await ended(opened)
        origin = opened.result()
        try:
            if cancelled is not None:
                raise cancelled
            yield origin
        finally:
            await completed(self._context.workers.fetch(origin.close))

    async def _listing(self, job: Job, origin: Origin, first: Listing | None) -> Listing:
        job.enter("listing")
        told = await self._context.workers.fetch(origin.list)
        listing = listed.held_to(first, job.source, listed.sound(job.source, told))
        listed.must_be(str(job.key), job.digest, listing)
        job.bytes_total = listing.bytes
        job.revision = listing.revision
        job.validators = listed.validators(listing)
        return listing

    async def _from(
        self, job: Job, origin: Origin, listing: Listing, held: Listing | None
    ) -> FetchResult:
        """Bring the model from one source, listing it once more if it changed meanwhile.

        A mirror is ``held`` to what the first source listed, then too.
        """
        try:
            return await self._linking(job, origin, listing)
        except OriginChanged as changed:
            figures = {"key": str(job.key), "job": job.id, "reason": changed.detail}
            log.warning("a fetch begins again", extra=figures)
        # The first one is closed: whoever read from it was to end.
        async with self._origin(job, job.source) as again:
            return await self._linking(job, again, await self._listing(job, again, held))

    async def _linking(self, job: Job, origin: Origin, listing: Listing) -> FetchResult:
        """Bring it, reading what is here already and cannot be linked."""
        unlinked: set[Digest | None] = set()
        while True:
            try:
                return await self._bring(job, origin, listing, unlinked)
            except LinkGone as gone:
                figures = {"key": str(job.key), "job": job.id, "reason": str(gone)}
                log.warning("a fetch reads what it would have linked", extra=figures)
                # One may have been damaged; after a second one it is the disk that links none.
                again = bool(unlinked)
                unlinked |= {file.sha256 for file in listing.files} if again else {gone.sha256}

    async def _bring(
        self, job: Job, origin: Origin, listing: Listing, unlinked: Container[Digest | None]
    ) -> FetchResult:
        current = await self._checks.current(job.key)
        if current is not None:
            manifest = self._context.models[current.id].manifest
            if manifest.source == _source(job):
                listing = listed.recalled(listing, manifest)
            if _is_same(job, listing, manifest):
                _must_be_wished(job, manifest.digest)
                return await completed(self._stay(job, current))
        self._drop_what_changed(job, listing)
        wished = self._context.clock.now()
        plan, reservation = await self._admit(job, listing, unlinked)
        try:
            await self._admission.granted(reservation)
            self._context.counters.admission_seconds.observe(self._context.clock.now() - wished)
            job.enter("downloading")
            async with filling(self._context, self._evictions, job, plan, reservation) as opened:
                files = await opened.fill(origin, self._bandwidth)
                if reservation.refusal is not None:
                    raise reservation.refusal
                # Which of the files is another is not known: none is kept to go on from.
                opened.worth_keeping = job.digest in (None, content_digest(files))
                _must_be_wished(job, content_digest(files))
                job.enter("publishing")
                return await completed(self._arrive(job, reservation, opened.ingest, files))
        except NoSpace as error:
            raise await self._context.no_space(reservation.bytes, error) from error
        finally:
            self._evictions.release(reservation)

    # -- Before a byte moves -----------------------------------------------------

    def _drop_what_changed(self, job: Job, listing: Listing) -> None:
        """Give up a partial of other files; one with other content is given up file by file."""
        partial = self._context.partials.of(job.key)
        if partial is None:
            return
        try:
            _, before = decode_note(partial.stored.note)
        except (ValueError, KeyError, TypeError) as error:
            figures = {"key": str(job.key), "reason": repr(error)}
            log.warning("what was fetched before is not understood", extra=figures)
            self._evictions.drop_partial(job.key)
            return
        if {file.path for file in before.files} != {file.path for file in listing.files}:
            figures = {"key": str(job.key), "reason": "its files are others now"}
            log.warning("a fetch begins again", extra=figures)
            self._evictions.drop_partial(job.key)

    async def _admit(
        self, job: Job, listing: Listing, unlinked: Container[Digest | None]
    ) -> tuple[Plan, Reservation]:
        """Wait for room as long as the most patient caller does.

        Raises TooLarge, Blocked or DiskFull; no byte was asked for and nothing evicted then.
        """
        plan = listed.plan(self._context, listing, (), unlinked)
        # A damaged model is in the books no more after this.
        for id in {link.generation for link in plan.links}:
            await self._checks.known(id)

        def need() -> Need:
            nonlocal plan
            partial = self._partial(job.key)
            started = () if partial is None else partial.stored.paths
            plan = listed.plan(self._context, listing, started, unlinked)
            links = tuple({link.generation: None for link in plan.links})
            resuming = None if partial is None else partial.booked
            job.needed = plan.size
            return Need(plan.size, links, resuming, job.spares)

        want = Want(job.key, listing.bytes or 0, need)
        loop = asyncio.get_running_loop()
        while True:
            job.enter("waiting")
            patience = job.patience(loop.time())
            try:
                reservation = await self._admission.admit(want, patience)
            except (TooLarge, Blocked, DiskFull) as error:
                # Somebody more patient may have joined meanwhile.
                if not isinstance(error, Blocked) or job.patience(loop.time()) <= 0:
                    self._admission.refused(job.key, error)
                    raise
            else:
                # The plan that room was made for, and not the one before it was asked for.
                return plan, reservation

    def _partial(self, key: Key) -> Partial | None:
        """What is here of the model, unless that alone is more than the budget by now."""
        partial = self._context.partials.of(key)
        if partial is not None and partial.booked.bytes > self._context.ledger.capacity:
            self._evictions.drop_partial(key)
            return None
        return partial

    # -- After the last byte -----------------------------------------------------

    async def _arrive(
        self, job: Job, reservation: Reservation, ingest: Ingest, files: tuple[FileEntry, ...]
    ) -> FetchResult:
        """Publish, and pin for every holder before anybody is told.  Must run to its end."""
        outcome = await self._publications.publish(
            reservation, ingest, files, _origination(job), guarded=True
        )
        await self._pin(job, outcome.record.manifest.id)
        job.result = "fetched" if outcome.created else "same"
        return job.result

    async def _stay(self, job: Job, current: Generation) -> FetchResult:
        """What is here is what the origin has: nothing moves."""
        self._context.ledger.read(current.id, 1)
        await self._publications.confirm(current, _origination(job))
        await self._pin(job, current.id)
        job.result = "same"
        return job.result

    async def _pin(self, job: Job, id: GenerationId) -> None:
        """Pin for every holder, those included who join meanwhile; then let the guard go.

        A pin that cannot be taken is the business of the one who asked for it.
        """
        try:
            while (caller := job.unpinned()) is not None:
                caller.pinned = True
                try:
                    caller.record = await self._pin_for(caller.terms, id)
                except WeightdError as error:
                    holder = caller.terms.holder
                    figures = {"key": str(id.key), "holder": holder, "reason": error.detail}
                    log.warning("fetched, and not pinned for its holder", extra=figures)
                    caller.failure = error
            generation = self._context.ledger.generation(id)
            if generation is not None:
                job.record = self._context.record(generation)
        finally:
            gone = self._context.ledger.read(id, -1)
            if gone is not None:
                self._context.tasks.spawn(self._evictions.let_go([gone]), "let go")
            self._context.changed.notify()

    async def _pin_for(self, terms: FetchTerms, id: GenerationId) -> Record:
        """Pin what came, whatever else of the key the holder has; else what replaced it already."""
        if terms.digest not in (None, id.digest):
            raise DigestMismatch(expected=terms.digest or "", actual=id.digest, file=str(id.key))
        pin, holder = self._pins.pin, terms.holder or ""
        ttl, forever = lease_of(self._context, terms, id.key)
        try:
            outcome = await pin(holder, id.key, ttl, forever, id.digest, terms.uid)
        except GenerationGone:
            outcome = await pin(holder, id.key, ttl, forever, terms.digest, terms.uid)
        return outcome.record


def lease_of(context: Context, terms: FetchTerms, key: Key) -> tuple[float | None, bool]:
    """For how long a fetch pins, and whether across reboots: as it says, else as it is pinned.

    A holder who has no pin, and names no time, has `Options.fetch_ttl`.
    """
    if terms.forever or terms.ttl is not None:
        return terms.ttl, terms.forever
    held = context.ledger.held(terms.holder or "", key)
    return (held[-1].ttl, held[-1].forever) if held else (context.options.fetch_ttl, False)


def _must_be_wished(job: Job, actual: Digest) -> None:
    """Raise DigestMismatch for other content than the caller insists on."""
    if job.digest is not None and actual != job.digest:
        raise DigestMismatch(expected=job.digest, actual=actual, file=str(job.key))


def _source(job: Job) -> str:
    """The source in use, as records tell it."""
    return parse_reference(job.source).text


def _is_same(job: Job, listing: Listing, here: Manifest) -> bool:
    """Whether what is here is what the origin has."""
    told = listed.content(listing)
    if told is not None:
        return told == here.digest
    known = listing.revision is not None and here.revision == listing.revision
    return known and here.source == _source(job)


def _origination(job: Job) -> Origination:
    return Origination(_source(job), job.revision, job.validators)
