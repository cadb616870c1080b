"""Adoptions: files that a user has on the same filesystem become a model where they are.

The bytes are on the disk already, as others': the budget has to have room for
them, and the disk has not.  Whatever fails before the publication gives every
file back.
"""

from __future__ import annotations

from collections.abc import Sequence

from weightd.cache.admission import Admission, Need, Want
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.publishing import UNTOLD, Origination, Publications
from weightd.cache.records import PutOutcome
from weightd.cache.tasks import completed
from weightd.errors import Blocked, DiskFull, InvalidRequest, IoError, TooLarge
from weightd.ledger import Reservation
from weightd.model import Key
from weightd.store import Ingest, NoSpace, Offered


class Adoptions:
    """Takes in what is here already."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        evictions: Evictions,
        publications: Publications,
    ) -> None:
        self._context = context
        self._admission = admission
        self._evictions = evictions
        self._publications = publications

    async def adopt(
        self,
        key: Key,
        files: Sequence[Offered],
        uid: int,
        *,
        origination: Origination = UNTOLD,
        wait: float = 0.0,
    ) -> PutOutcome:
        """Make a model of files that the user ``uid`` has somewhere on this filesystem.

        ``wait`` is how long to wait while blocked, in seconds.  Once it has room it
        runs to its end, whoever stops waiting.  Raises InvalidRequest for what cannot
        be adopted, InUse, DigestMismatch, TooLarge, Blocked, DiskFull, TooMany, Pinned,
        Draining or IoError; every file is then where it was, unless the error says otherwise.
        """
        self._context.must_take_new()
        ingest = self._context.store.begin(key)
        ingest.announce([one.file for one in files])
        if any(one.trusted and one.file.sha256 is None for one in files):
            raise InvalidRequest(what="trusted", reason="a file is announced without its sha256")
        # Nothing goes for what would be refused.  Not by the threads of lookups: on its way there
        # may be a disk that hangs.
        await self._context.workers.transfer(ingest.look_at, files, uid)
        blocks = self._context.store.blocks
        size = sum(blocks(one.file.bytes) for one in files)
        present = sum(blocks(one.file.bytes) for one in files if not one.copy)
        declared = sum(one.file.bytes for one in files)
        want = Want(key, declared, lambda: Need(size, present=present))
        now = self._context.clock.now()
        with self._context.under_way.bring("adoption", key, declared, now) as bringing:
            try:
                reservation = bringing.reservation = await self._admission.admit(want, wait)
            except (TooLarge, Blocked, DiskFull) as error:
                self._admission.refused(key, error)
                raise
            try:
                await self._admission.granted(reservation)
                return await completed(self._take(ingest, reservation, files, uid, origination))
            except NoSpace as error:
                raise await self._context.no_space(size, error) from error
            finally:
                self._evictions.release(reservation)

    async def _take(
        self,
        ingest: Ingest,
        reservation: Reservation,
        files: Sequence[Offered],
        uid: int,
        origination: Origination,
    ) -> PutOutcome:
        workers = self._context.workers
        try:
            await workers.commit(ingest.make)
            entries = await workers.transfer(ingest.adopt, files, uid)
            if reservation.refusal is not None:
                raise reservation.refusal
            return await self._publications.publish(reservation, ingest, entries, origination)
        finally:
            # The same content may be here already: then nothing was needed, and all goes back.
            await self._evictions.abort(ingest, reservation)
            if ingest.adoption is not None and ingest.adoption.stranded:
                self._tell_of_stranded(ingest, ingest.adoption.stranded)

    def _tell_of_stranded(self, ingest: Ingest, places: Sequence[str]) -> None:
        place = self._context.store.root / "incoming" / ingest.id
        raise IoError(
            call=f"return of {', '.join(places[:3])}",
            error=f"something else is in its place; it is kept in {place}, and goes back at the "
            "next start once that is out of its way",
        )
