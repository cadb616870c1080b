"""The one ingest path: a put differs from any other arrival only in where bytes come from.

``reserve -> evict -> grant -> write and verify -> publish -> commit``.  Every
exit before the publication, cancellation included, aborts the ingest and gives
the reservation back.  From the publication on, the arrival runs to its end
whoever stops waiting for it, so that ledger and disk agree.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from weightd.cache.admission import Admission
from weightd.cache.checks import Checks
from weightd.cache.context import Context, Model
from weightd.cache.evictions import Evictions
from weightd.cache.intake import Allowance, Meter, check, grows, receive
from weightd.cache.records import Body, PutOutcome, PutTerms
from weightd.cache.tasks import completed, ended
from weightd.errors import (
    Blocked,
    DiskFull,
    Exists,
    IoError,
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
)
from weightd.store import AlreadyPublished, Ingest, NoSpace, StillThere


class Arrivals:
    """Takes bodies in."""

    def __init__(
        self, context: Context, admission: Admission, evictions: Evictions, checks: Checks
    ) -> None:
        self._context = context
        self._admission = admission
        self._evictions = evictions
        self._checks = checks
        # A body has begun only when a thread is free for it: those who waited come in a crowd.
        self._threads = asyncio.Semaphore(context.options.transfers)
        self.last_sequence = 0

    async def put(self, key: Key, body: Body, terms: PutTerms) -> PutOutcome:
        """Take a model in; the body is entered only once its room is promised.

        Raises Exists, TooLarge, Blocked, DiskFull, TooMany before the first
        byte; InvalidArchive, InvalidRequest, DigestMismatch, IncompleteBody,
        Stalled, Blocked, DiskFull or IoError after.  Whatever it raises, the
        model that was resident is, unless it was named as a victim.
        """
        check(terms)
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
        ingest = self._context.store.begin(reservation.key)
        try:
            await completed(self._context.workers.commit(ingest.make))
            async with self._threads:
                files = await self._transfer(reservation, ingest, body, terms)
            if reservation.refusal is not None:
                raise reservation.refusal
            return await completed(self._publish(reservation, ingest, files, terms))
        finally:
            await completed(self._abort(ingest, reservation))

    async def _abort(self, ingest: Ingest, reservation: Reservation) -> None:
        """Let what was written go; a second time, or after a publication, this does nothing."""
        if ingest.settled:
            return
        left = await self._context.workers.commit(ingest.abort)
        if left is not None:
            # Counted as what is doomed from now on, and once.
            reservation.written = max(0, reservation.written - left.bytes)
            self._evictions.add_debris([left])

    async def _transfer(
        self, reservation: Reservation, ingest: Ingest, body: Body, terms: PutTerms
    ) -> tuple[FileEntry, ...]:
        """Let a thread write the body; leave only when that thread is done with it."""
        allowance = Allowance(
            self._admission, reservation, self._context.progress.wrote, growing=grows(terms)
        )
        receiving: asyncio.Future[tuple[FileEntry, ...]] | None = None
        try:
            async with body as source:
                metered = Meter(source, reservation, terms, self._context.counters.received)
                receiving = self._context.workers.transfer(
                    receive, ingest, metered, allowance, reservation.key, terms
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
                succession = await self._restore(reservation, ingest, known)
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
        manifest = Manifest(
            key=id.key,
            digest=id.digest,
            files=files,
            sequence=self._next_sequence(),
            published_at=now,
        )
        blobs = await self._publish_on_disk(ingest, manifest)
        succession = self._context.ledger.commit(reservation, id.digest, blobs, now)
        self._context.models[id] = Model(manifest, checked_at=now)
        self._context.counters.arrived(id, manifest.bytes, now)
        self._tell("published", succession.generation)
        return succession

    async def _publish_on_disk(self, ingest: Ingest, manifest: Manifest) -> tuple[Blob, ...]:
        try:
            return await self._appear(ingest, manifest)
        except AlreadyPublished:
            await self._evictions.make_way(manifest.id)
            return await self._appear(ingest, manifest)

    async def _appear(self, ingest: Ingest, manifest: Manifest) -> tuple[Blob, ...]:
        publish = self._context.store.publish
        try:
            _, blobs = await self._context.workers.commit(publish, ingest, manifest)
        except StillThere as left:
            self._evictions.add_damaged({left.generation: left.bytes})
            raise left.failure from left
        return blobs

    async def _restore(
        self, reservation: Reservation, ingest: Ingest, known: Generation
    ) -> Succession:
        """The content of a retired generation came again: it is current once more."""
        if known.damaged:
            raise Pinned(key=str(known.id.key), holders=holder_figures([known]))
        ledger = self._context.ledger
        # Its last pin may go while the mark is taken off; the reader keeps it until it is current.
        ledger.read(known.id, 1)
        try:
            await self._unretire(known)
            # The promise ends with the restoration, so the copy that came has to go before.
            await self._abort(ingest, reservation)
            succession = ledger.restore(reservation, known.id, self._context.clock.now())
        finally:
            gone = ledger.read(known.id, -1)
            if gone is not None:
                self._context.tasks.spawn(self._evictions.let_go([gone]), "let go")
        self._tell("published", known)
        return succession

    async def _unretire(self, known: Generation) -> None:
        """Let the disk say that it is current; when it fails, that it is not."""
        model = self._context.models[known.id]
        manifest = replace(model.manifest, sequence=self._next_sequence())
        # Nobody else is to mark it meanwhile.
        self._evictions.forget_mark(known.id)
        try:
            await self._context.workers.commit(self._context.store.restore, manifest)
        except (IoError, NoSpace):
            # It may be unmarked by now, and would come before what is current at the next start.
            await self._evictions.mark_or_later(known.id)
            raise
        model.manifest = manifest

    def _next_sequence(self) -> int:
        self.last_sequence += 1
        return self.last_sequence

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
