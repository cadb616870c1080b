"""Uploads: a writer on this node fills a directory himself, and says when it is whole.

His bytes are written once, by him, at the disk's speed.  Room is promised
before he gets the directory; what he has written is looked at while he does,
and he is cut off beyond it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from weightd.cache.admission import Admission, Need, Want
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.publishing import Publications
from weightd.cache.records import PutOutcome, UploadView
from weightd.cache.tasks import completed
from weightd.errors import (
    Blocked,
    DiskFull,
    Draining,
    InUse,
    InvalidRequest,
    IoError,
    TooLarge,
    TooMany,
    UnknownUpload,
    WeightdError,
)
from weightd.ledger import Reservation
from weightd.model import FileEntry, Key
from weightd.store import Announced, CopyNeeded, Ingest, NoSpace

KEPT_SECONDS: Final = 600.0
"""How long the end of an upload is remembered for one who asks again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who fills a directory."""

    uid: int
    gid: int


@dataclass(slots=True, eq=False)
class _Upload:
    key: Key
    files: tuple[Announced, ...]
    trusted: bool
    reservation: Reservation
    ingest: Ingest
    path: Path
    created_at: float
    expires_at: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One of: looking at it, committing it, ending it."""
    committing: asyncio.Task[PutOutcome] | None = None

    @property
    def id(self) -> str:
        return self.ingest.id


@dataclass(frozen=True, slots=True)
class _Ended:
    at: float
    outcome: PutOutcome | WeightdError


class _Copying:
    """Books what stands twice for a while: a copy, and the file whose place it takes."""

    def __init__(
        self, reservation: Reservation, spare: Reservation, progress: Callable[[int], None]
    ) -> None:
        self._reservation = reservation
        self._spare = spare
        self._progress = progress

    def wrote(self, size: int) -> None:
        """Tell of blocks that came for a copy, or went, the copy's or the file's: that is over."""
        self._progress(size)
        if size > 0:
            self._spare.written += size
        else:
            self._reservation.written += self._spare.written + size
            self._spare.written = 0


class Uploads:
    """Those under way, and those that ended a little while ago."""

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
        self._uploads: dict[str, _Upload] = {}
        self._beginning = 0
        self._ended: dict[str, _Ended] = {}
        self._closed = False

    def views(self) -> list[UploadView]:
        """Those under way, the oldest first."""
        return [self._view(upload) for upload in self._uploads.values()]

    async def begin(
        self, key: Key, files: Sequence[Announced], owner: Owner, *, wait: float, trusted: bool
    ) -> UploadView:
        """Promise room for ``files`` and hand out a directory for them, which ``owner`` may fill.

        ``wait`` is how long to wait while blocked, in seconds.  With ``trusted``
        the hashes are taken as they were announced.  Raises InvalidRequest, Forbidden,
        TooMany, TooLarge, Blocked, DiskFull, Draining or IoError; nothing is kept then.
        """
        self._context.must_take_new()
        ingest = self._context.store.begin(key)
        ingest.announce(files)
        if trusted and any(file.sha256 is None for file in files):
            raise InvalidRequest(what="trusted", reason="a file is announced without its sha256")
        most = self._context.options.uploads
        if len(self._uploads) + self._beginning >= most:
            raise TooMany(what="uploads", limit=most)
        self._beginning += 1
        try:
            announced, now = sum(file.bytes for file in files), self._context.clock.now()
            with self._context.under_way.bring("upload", key, announced, now):
                upload = await self._begin(key, tuple(files), owner, ingest, wait, trusted)
        except (TooLarge, Blocked, DiskFull) as error:
            self._admission.refused(key, error)
            raise
        finally:
            self._beginning -= 1
        return self._view(upload)

    async def _begin(
        self,
        key: Key,
        files: tuple[Announced, ...],
        owner: Owner,
        ingest: Ingest,
        wait: float,
        trusted: bool,
    ) -> _Upload:
        size = sum(self._context.store.blocks(file.bytes) for file in files)
        want = Want(key, sum(file.bytes for file in files), lambda: Need(size))
        reservation = await self._admission.admit(want, wait)
        begun = False
        try:
            await self._admission.granted(reservation)
            await completed(self._context.workers.commit(ingest.make))
            path = await completed(
                self._context.workers.commit(ingest.open_to, owner.uid, owner.gid, files)
            )
            if self._closed:
                raise Draining
            begun = True
        except NoSpace as error:
            raise await self._context.no_space(size, error) from error
        finally:
            if not begun:
                await completed(self._let_go(ingest, reservation))
        now = self._context.clock.now()
        # Its caller may never have got the answer.
        options = self._context.options
        expires_at = now + min(options.upload_begun_within, options.upload_ttl)
        upload = _Upload(key, files, trusted, reservation, ingest, path, now, expires_at)
        self._uploads[upload.id] = upload
        return upload

    async def commit(self, id: str) -> PutOutcome:
        """Verify what was filled, and publish it.

        What is wrong with it is told, and its writer may go on: InvalidRequest,
        InUse, DigestMismatch, and Blocked or TooLarge where it needs to be copied.
        After DiskFull, IoError or Pinned he may commit again.  Also raises UnknownUpload,
        and what ended it.  Said twice, it is done once.
        """
        upload = self._uploads.get(id)
        if upload is None:
            ended = self._ended.get(id)
            if ended is None:
                raise UnknownUpload(upload=id)
            if isinstance(ended.outcome, WeightdError):
                raise ended.outcome
            record = ended.outcome.record
            if record.manifest.id not in self._context.models:
                # Evicted since: what it was told of is nowhere.
                raise UnknownUpload(upload=id)
            return PutOutcome(record, created=False)
        if upload.committing is None:
            upload.committing = self._context.tasks.spawn(self._commit(upload), "commit")
        # It goes on when its caller leaves.
        return await asyncio.shield(upload.committing)

    async def cancel(self, id: str) -> None:
        """End an upload; one that is being committed, once that did not succeed.

        Raises UnknownUpload.
        """
        upload = self._uploads.get(id)
        if upload is None:
            raise UnknownUpload(upload=id)
        async with upload.turn:
            if upload.id not in self._uploads:
                raise UnknownUpload(upload=id)
            await completed(self._end(upload, UnknownUpload(upload=id)))

    async def tidy(self) -> None:
        """Look at what was written; end what went too far, and what nobody goes on with."""
        now = self._context.clock.now()
        for id in [id for id, one in self._ended.items() if now - one.at > KEPT_SECONDS]:
            del self._ended[id]
        for upload in list(self._uploads.values()):
            if upload.committing is not None:
                continue
            async with upload.turn:
                if upload.id in self._uploads:
                    await completed(self._look(upload))

    async def close(self) -> None:
        """End all of them; those being committed first come to their end."""
        self._closed = True
        for upload in list(self._uploads.values()):
            async with upload.turn:
                if upload.id in self._uploads:
                    await self._end(upload, Draining())

    # -- Inside --------------------------------------------------------------------

    async def _commit(self, upload: _Upload) -> PutOutcome:
        async with upload.turn:
            if upload.id not in self._uploads:
                raise UnknownUpload(upload=upload.id)
            try:
                outcome = await self._publish(upload)
            except NoSpace as error:
                raise await self._context.no_space(upload.reservation.bytes, error) from error
            except WeightdError as error:
                over = isinstance(error, UnknownUpload) or error is upload.reservation.refusal
                # Or it was published, and the disk does not take it back.
                if over or upload.ingest.settled:
                    await self._end(upload, error)
                raise
            finally:
                upload.committing = None
                upload.expires_at = self._context.clock.now() + self._context.options.upload_ttl
            await self._end(upload, outcome)
            return outcome

    async def _publish(self, upload: _Upload) -> PutOutcome:
        await self._measure(upload)
        # Its look may have ended it.
        self._must_stand(upload)
        files = await self._taken_over(upload)
        if upload.reservation.refusal is not None:
            raise upload.reservation.refusal
        return await self._publications.publish(upload.reservation, upload.ingest, files)

    async def _taken_over(self, upload: _Upload) -> tuple[FileEntry, ...]:
        """The files, ours; with room of their own for copies where those are needed."""
        take_over, transfer = upload.ingest.take_over, self._context.workers.transfer
        try:
            return await transfer(take_over, upload.files, trusted=upload.trusted)
        except CopyNeeded as needed:
            room = needed.bytes
        spare = await self._room_to_copy(upload.key, room)
        try:
            await self._admission.granted(spare)
            copying = _Copying(upload.reservation, spare, self._context.progress.wrote)
            return await transfer(
                take_over, upload.files, trusted=upload.trusted, room=room, wrote=copying.wrote
            )
        except CopyNeeded:
            reason = "another user goes on replacing files in it"
            raise InUse(key=str(upload.key), reason=reason) from None
        finally:
            self._evictions.release(spare)

    async def _room_to_copy(self, key: Key, size: int) -> Reservation:
        """Promise it, by eviction if need be.  Raises Blocked with what would need none."""
        try:
            return await self._admission.admit(Want(key, size, lambda: Need(size)), 0.0)
        except Blocked as blocked:
            blocked.hint = (
                "They are needed to copy a file that was put in the place of the one weightd made; "
                "write into that instead, or wait for room."
            )
            raise

    async def _look(self, upload: _Upload) -> None:
        try:
            await self._measure(upload)
            self._must_stand(upload)
        except IoError as error:
            figures = {"key": str(upload.key), "reason": error.detail}
            log.warning("how much was uploaded is not known", extra=figures)
        except WeightdError as error:
            figures = {"key": str(upload.key), "code": error.code, "reason": error.detail}
            log.warning("an upload is ended", extra=figures)
            await self._end(upload, error)

    async def _measure(self, upload: _Upload) -> None:
        """Count what is there by now; whoever goes on has his time anew.  Raises IoError."""
        occupied = await self._context.workers.disk(upload.ingest.measure)
        reservation = upload.reservation
        growth = min(occupied, reservation.bytes) - reservation.written
        if growth:
            self._context.progress.wrote(growth)
            reservation.written += growth
            upload.expires_at = self._context.clock.now() + self._context.options.upload_ttl
        if occupied > reservation.bytes:
            raise InvalidRequest(
                what="upload",
                reason=f"{occupied} bytes were written, {reservation.bytes} were announced",
            )

    def _must_stand(self, upload: _Upload) -> None:
        """Raise what ends an upload that was not asked to end."""
        if upload.reservation.refusal is not None:
            raise upload.reservation.refusal
        if self._context.clock.now() > upload.expires_at:
            raise UnknownUpload(upload=upload.id)

    async def _end(self, upload: _Upload, outcome: PutOutcome | WeightdError) -> None:
        del self._uploads[upload.id]
        self._ended[upload.id] = _Ended(self._context.clock.now(), outcome)
        await self._let_go(upload.ingest, upload.reservation)

    async def _let_go(self, ingest: Ingest, reservation: Reservation) -> None:
        """What is not published goes, and with it what was promised."""
        await self._evictions.abort(ingest, reservation)
        self._evictions.release(reservation)

    def _view(self, upload: _Upload) -> UploadView:
        return UploadView(
            id=upload.id,
            key=upload.key,
            path=upload.path,
            relative_path=str(upload.path.relative_to(self._context.store.root)),
            bytes=sum(file.bytes for file in upload.files),
            written=upload.reservation.written,
            created_at=upload.created_at,
            expires_at=upload.expires_at,
        )
