"""The one ingest path: a put differs from any other arrival only in where bytes come from.

``reserve -> evict -> grant -> write and verify -> publish -> commit``.  Every
exit before the publication, cancellation included, aborts the ingest and gives
the reservation back.  From the publication on, the arrival runs to its end
whoever stops waiting for it, so that ledger and disk agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from weightd.cache.admission import Admission
from weightd.cache.checks import Checks
from weightd.cache.context import Context, Model
from weightd.cache.evictions import Evictions
from weightd.cache.records import Body, PutOutcome, PutTerms, Source
from weightd.cache.tasks import completed, ended
from weightd.errors import (
    Blocked,
    DiskFull,
    Exists,
    InvalidRequest,
    Pinned,
    TooLarge,
)
from weightd.ledger import Generation, Reservation, Standing, Succession, holder_figures
from weightd.model import (
    Blob,
    FileEntry,
    GenerationId,
    Key,
    Manifest,
    content_digest,
    file_path_fault,
)
from weightd.store import AlreadyPublished, Ingest, NoSpace

GROWTH_STEP: Final = 16 << 20
"""How many bytes an arrival of unknown size asks for beyond what it needs next."""


class Arrivals:
    """Takes bodies in."""

    def __init__(
        self, context: Context, admission: Admission, evictions: Evictions, checks: Checks
    ) -> None:
        self._context = context
        self._admission = admission
        self._evictions = evictions
        self._checks = checks
        self.last_sequence = 0

    async def put(self, key: Key, body: Body, terms: PutTerms) -> PutOutcome:
        """Take a model in; the body is entered only once its room is promised.

        Raises Exists, TooLarge, Blocked, DiskFull, TooMany before the first
        byte; InvalidArchive, InvalidRequest, DigestMismatch, IncompleteBody,
        Stalled, Blocked, DiskFull or IoError after.  Whatever it raises, the
        model that was resident is, unless it was named as a victim.
        """
        _check(terms)
        started = self._context.clock.now()
        result = "failed"
        try:
            outcome = await self._put(key, body, terms, started)
            result = "created" if outcome.created else "same"
        except Exists:
            result = "refused"
            raise
        except (TooLarge, Blocked, DiskFull) as error:
            result = "refused"
            self._admission.refused(key, error)
            raise
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        finally:
            self._context.counters.puts[result] += 1
        if outcome.created:
            self._context.counters.put_seconds.observe(self._context.clock.now() - started)
        return outcome

    async def _put(self, key: Key, body: Body, terms: PutTerms, started: float) -> PutOutcome:
        current = await self._checks.current(key)
        if current is not None and terms.unless_digest == current.id.digest:
            return self._same(current)
        self._must_not_exist(key, terms)
        declared = terms.length if terms.length is not None else terms.most or 0
        size = self._context.store.blocks(declared)
        reservation = await self._admission.admit(key, size, declared, terms.wait)
        try:
            await self._admission.granted(reservation)
            self._context.counters.admission_seconds.observe(self._context.clock.now() - started)
            return await self._receive(reservation, body, terms)
        except NoSpace as error:
            raise await self._context.no_space(reservation.bytes, error) from error
        finally:
            self._evictions.release(reservation)

    async def _receive(self, reservation: Reservation, body: Body, terms: PutTerms) -> PutOutcome:
        ingest = await self._begin(reservation.key)
        try:
            files = await self._transfer(reservation, ingest, body, terms)
            if reservation.refusal is not None:
                raise reservation.refusal
            return await completed(self._publish(reservation, ingest, files, terms))
        finally:
            await completed(self._abort(ingest))

    async def _begin(self, key: Key) -> Ingest:
        beginning = self._context.workers.commit(self._context.store.begin, key)
        cancelled = await ended(beginning)
        if cancelled is None:
            return beginning.result()
        if beginning.exception() is None:
            await completed(self._abort(beginning.result()))
        raise cancelled

    async def _abort(self, ingest: Ingest) -> None:
        """Let what was written go; after a publication this does nothing."""
        left = await self._context.workers.commit(ingest.abort)
        if left is not None:
            self._evictions.add_debris([left])

    async def _transfer(
        self, reservation: Reservation, ingest: Ingest, body: Body, terms: PutTerms
    ) -> tuple[FileEntry, ...]:
        """Let a thread write the body; leave only when that thread is done with it."""
        allowance = Allowance(
            self._admission, reservation, self._context.progress.wrote, growing=_grows(terms)
        )
        receiving: asyncio.Future[tuple[FileEntry, ...]] | None = None
        try:
            async with body as source:
                metered = Meter(source, reservation, terms.most, self._context.counters.received)
                receiving = self._context.workers.transfer(
                    _receive, ingest, metered, allowance, reservation.key, terms
                )
                return await asyncio.shield(receiving)
        finally:
            allowance.close()
            if receiving is not None:
                cancelled = await ended(receiving)
                if not receiving.cancelled():
                    receiving.exception()
                if cancelled is not None:
                    raise cancelled

    async def _publish(
        self,
        reservation: Reservation,
        ingest: Ingest,
        files: tuple[FileEntry, ...],
        terms: PutTerms,
    ) -> PutOutcome:
        """Publish and commit, one arrival of a key at a time.  Must run to its end."""
        key = reservation.key
        while key in self._context.publishing or self._context.ledger.leaving(key):
            await self._context.changed.wait()
        self._context.publishing.add(key)
        try:
            id = GenerationId(key, content_digest(files))
            known = await self._checks.known(id)
            self._must_not_exist(key, terms)
            if known is not None and known.standing is Standing.RESIDENT:
                return self._same(known)
            if known is not None:
                succession = await self._restore(reservation, known)
            else:
                succession = await self._commit(reservation, ingest, id, files)
            # Nothing keeps it from being evicted again before its predecessor is where it belongs.
            record = self._context.record(succession.generation)
            await self._follow(succession)
        finally:
            self._context.publishing.discard(key)
            self._context.changed.notify()
        return PutOutcome(record, created=True)

    async def _commit(
        self,
        reservation: Reservation,
        ingest: Ingest,
        id: GenerationId,
        files: tuple[FileEntry, ...],
    ) -> Succession:
        now = self._context.clock.now()
        self.last_sequence += 1
        manifest = Manifest(
            key=id.key,
            digest=id.digest,
            files=files,
            sequence=self.last_sequence,
            published_at=now,
        )
        blobs = await self._publish_on_disk(ingest, manifest)
        succession = self._context.ledger.commit(reservation, id.digest, blobs, now)
        self._context.models[id] = Model(manifest, checked_at=now)
        self._context.counters.arrived(id, manifest.bytes, now)
        self._tell("published", succession.generation)
        return succession

    async def _publish_on_disk(self, ingest: Ingest, manifest: Manifest) -> tuple[Blob, ...]:
        publish = self._context.store.publish
        try:
            _, blobs = await self._context.workers.commit(publish, ingest, manifest)
        except AlreadyPublished:
            await self._evictions.make_way(manifest.id)
            _, blobs = await self._context.workers.commit(publish, ingest, manifest)
        return blobs

    async def _restore(self, reservation: Reservation, known: Generation) -> Succession:
        """The content of a retired generation came again: it is current once more."""
        if known.damaged:
            raise Pinned(key=str(known.id.key), holders=holder_figures([known]))
        ledger = self._context.ledger
        # Its last pin may go while the mark is taken off; the reader keeps it until it is current.
        ledger.read(known.id, 1)
        try:
            await self._context.workers.commit(self._context.store.clear_superseded, known.id)
            succession = ledger.restore(reservation, known.id, self._context.clock.now())
        finally:
            gone = ledger.read(known.id, -1)
            if gone is not None:
                self._context.tasks.spawn(self._evictions.let_go([gone]), "let go")
        self._tell("published", known)
        return succession

    async def _follow(self, succession: Succession) -> None:
        """Put the predecessor where it belongs before the arrival is acknowledged.

        What the disk refuses here is done later: the arrival has happened.
        """
        if succession.replaced is not None:
            self._tell("replaced", succession.replaced.generation)
            await self._evictions.let_go([succession.replaced])
            if self._context.ledger.generation(succession.replaced.id) is not None:
                # Used, or refused by the disk: it is retired now, and `Upkeep` asks again.
                self._tell("retired", succession.replaced.generation)
                await self._evictions.mark_or_later(succession.replaced.id)
        if succession.left:
            self._context.tasks.spawn(self._evictions.let_go(succession.left), "let go")
        if succession.retired is not None:
            self._tell("retired", succession.retired)
            await self._evictions.mark_or_later(succession.retired.id)

    def _must_not_exist(self, key: Key, terms: PutTerms) -> None:
        current = self._context.ledger.current(key)
        if terms.create_only and current is not None:
            raise Exists(key=str(key), digest=current.id.digest)

    def _same(self, generation: Generation) -> PutOutcome:
        self._context.ledger.touch(generation.id, self._context.clock.now())
        return PutOutcome(self._context.record(generation), created=False)

    def _tell(self, type: str, generation: Generation) -> None:
        self._context.events.tell(
            type,
            key=str(generation.id.key),
            generation=generation.id.digest,
            bytes=generation.bytes,
        )


class Meter:
    """Counts what a body brings, holds it to its declared most, ends it when it is refused."""

    def __init__(
        self,
        source: Source,
        reservation: Reservation,
        most: int | None,
        count: Callable[[int], None],
    ) -> None:
        self._source = source
        self._reservation = reservation
        self._most = most
        self._count = count
        self._read = 0

    def readinto(self, buffer: memoryview) -> int:
        if self._reservation.refusal is not None:
            raise self._reservation.refusal
        size = self._source.readinto(buffer)
        self._read += size
        self._count(size)
        if self._most is not None and self._read > self._most:
            raise InvalidRequest(
                what="bytes", reason=f"the body is longer than the {self._most} bytes declared"
            )
        return size


class Allowance:
    """What an arrival may write, asked for by its thread before it writes, and told after.

    Growth is decided on the event loop's thread, where the ledger is; the
    asking thread waits for it, at most as long as `Admission.granted` does.
    """

    def __init__(
        self,
        admission: Admission,
        reservation: Reservation,
        progress: Callable[[int], None],
        *,
        growing: bool,
    ) -> None:
        self._admission = admission
        self._reservation = reservation
        self._progress = progress
        self._claimed = 0
        self._growing = growing
        self._loop = asyncio.get_running_loop()
        self._allowed = reservation.bytes
        self._asking: Future[int] | None = None
        self._closed = False

    def claim(self, size: int) -> None:
        """Announce that ``size`` bytes more of blocks are to be written."""
        missing = self._claimed + size - self._allowed
        if missing > 0:
            if not self._growing:
                raise InvalidRequest(
                    what="body", reason=f"it needs more than the {self._allowed} bytes promised"
                )
            self._asking = asyncio.run_coroutine_threadsafe(
                self._admission.grow(self._reservation, missing, GROWTH_STEP), self._loop
            )
            if self._closed:
                self._asking.cancel()
            self._allowed += self._asking.result()
        self._claimed += size

    def wrote(self, size: int) -> None:
        """Tell that ``size`` bytes more of blocks are on the disk now."""
        # First what a look at the disk may have missed, then what is no longer unwritten.
        self._progress(size)
        self._reservation.written += size

    def close(self) -> None:
        """The arrival ends: let a thread that waits for growth go."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()


def _receive(
    ingest: Ingest, source: Source, allowance: Allowance, key: Key, terms: PutTerms
) -> tuple[FileEntry, ...]:
    if terms.archive:
        return ingest.receive_tar(source, claim=allowance.claim, wrote=allowance.wrote)
    entry = ingest.receive_file(
        terms.file or key.last_segment,
        source,
        claim=allowance.claim,
        wrote=allowance.wrote,
        length=terms.length,
        sha256=terms.sha256,
    )
    return (entry,)


def _grows(terms: PutTerms) -> bool:
    """Whether the blocks needed can pass what was declared: files of an archive are rounded up."""
    return terms.archive or (terms.length is None and terms.most is None)


def _check(terms: PutTerms) -> None:
    if terms.file is not None and (fault := file_path_fault(terms.file)) is not None:
        raise InvalidRequest(what="file", reason=f"{terms.file!r} names no file: {fault}")
    if terms.archive and (terms.file is not None or terms.sha256 is not None):
        raise InvalidRequest(
            what="file" if terms.file is not None else "sha256",
            reason="it goes with a single file, and the body is declared to be an archive",
        )
    if terms.length is not None and terms.most is not None and terms.length > terms.most:
        raise InvalidRequest(
            what="bytes", reason=f"the body's length, {terms.length}, is more than {terms.most}"
        )
