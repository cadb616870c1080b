"""The one ingest path: a put differs from any other arrival only in where bytes come from.

``reserve -> evict -> grant -> write and verify -> publish -> commit``.  Every
exit before the publication, cancellation included, aborts the ingest and gives
the reservation back.  From the publication on, the arrival runs to its end
whoever stops waiting for it, so that ledger and disk agree.
"""

from __future__ import annotations

import asyncio

from weightd.cache.admission import Admission, Need, Want
from weightd.cache.checks import Checks
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.intake import Allowance, Meter, check, grows, receive
from weightd.cache.publishing import Publications
from weightd.cache.records import Body, PutOutcome, PutTerms
from weightd.cache.tasks import completed, ended
from weightd.cache.underway import Bringing
from weightd.errors import (
    Blocked,
    DiskFull,
    Exists,
    TooLarge,
)
from weightd.ledger import Reservation
from weightd.model import (
    FileEntry,
    Key,
)
from weightd.store import Ingest, NoSpace


class Arrivals:
    """Takes bodies in."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        evictions: Evictions,
        checks: Checks,
        publications: Publications,
    ) -> None:
        self._context = context
        self._admission = admission
        self._evictions = evictions
        self._checks = checks
        self._publications = publications
        # A body has begun only when a thread is free for it: those who waited come in a crowd.
        self._threads = asyncio.Semaphore(context.options.transfers)

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
            return self._publications.same(current)
        if terms.create_only:
            self._publications.must_not_exist(key)
        declared = terms.length if terms.length is not None else terms.most or 0
        size = self._context.store.blocks(declared)
        want = Want(key, declared, lambda: Need(size))
        length = terms.length if terms.length is not None else terms.most
        with self._context.under_way.bring("put", key, length, started) as bringing:
            reservation = bringing.reservation = await self._admission.admit(want, terms.wait)
            try:
                await self._admission.granted(reservation)
                waited = self._context.clock.now() - started
                self._context.counters.admission_seconds.observe(waited)
                return await self._receive(reservation, bringing, body, terms)
            except NoSpace as error:
                raise await self._context.no_space(reservation.bytes, error) from error
            finally:
                self._evictions.release(reservation)

    async def _receive(
        self, reservation: Reservation, bringing: Bringing, body: Body, terms: PutTerms
    ) -> PutOutcome:
        ingest = self._context.store.begin(reservation.key)
        try:
            await completed(self._context.workers.commit(ingest.make))
            async with self._threads:
                files = await self._transfer(reservation, bringing, ingest, body, terms)
            if reservation.refusal is not None:
                raise reservation.refusal
            publish = self._publications.publish
            return await completed(
                publish(reservation, ingest, files, create_only=terms.create_only)
            )
        finally:
            await completed(self._evictions.abort(ingest, reservation))

    async def _transfer(
        self,
        reservation: Reservation,
        bringing: Bringing,
        ingest: Ingest,
        body: Body,
        terms: PutTerms,
    ) -> tuple[FileEntry, ...]:
        """Let a thread write the body; leave only when that thread is done with it."""

        def received(size: int) -> None:
            bringing.received += size
            self._context.counters.received(size)

        allowance = Allowance(
            self._admission, reservation, self._context.progress.wrote, growing=grows(terms)
        )
        receiving: asyncio.Future[tuple[FileEntry, ...]] | None = None
        try:
            async with body as source:
                metered = Meter(source, reservation, terms, received)
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
