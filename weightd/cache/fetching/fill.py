"""The loop's side of a download: an ingest opened or resumed, streams started and watched."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.fetching.bandwidth import Bandwidth
from weightd.cache.fetching.download import Download
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.listed import Link, Plan, unchanged
from weightd.cache.fetching.ranges import Piece
from weightd.cache.fetching.stored import decode_note, encode_note
from weightd.cache.fetching.streams import Streams
from weightd.cache.tasks import completed
from weightd.cache.workers import STREAM_THREADS
from weightd.errors import Blocked, DiskFull, IoError, TooLarge
from weightd.ledger import Reservation
from weightd.model import Digest, FileEntry
from weightd.origins import parse_reference
from weightd.origins.contract import Origin, OriginKind, RemoteFile
from weightd.store import Ingest, NoSpace, Parked

log = logging.getLogger(__name__)


class LinkGone(Exception):
    """A file that was to be linked is not what it was published as any more, or takes no link."""

    def __init__(self, reason: str, sha256: Digest) -> None:
        super().__init__(reason)
        self.sha256 = sha256


class Tally:
    """What threads tell of the bytes they bring; may be called by several at once."""

    def __init__(
        self, reservation: Reservation, progress: Callable[[int], None], kind: OriginKind,
        count: Callable[[OriginKind, int], None],
    ) -> None:  # fmt: skip
        self._reservation = reservation
        self._progress = progress
        self._kind = kind
        self._count = count
        self._telling = threading.Lock()

    def claim(self, size: int) -> None:
        """Ask before ``size`` bytes of blocks are taken, all of which were promised.

        Raises what the arrival was refused with meanwhile.
        """
        del size
        self.must_go_on()

    def must_go_on(self) -> None:
        """Raise what the arrival was refused with meanwhile."""
        if self._reservation.refusal is not None:
            raise self._reservation.refusal

    def wrote(self, size: int) -> None:
        """``size`` bytes more of blocks are on the disk, or fewer when it is negative."""
        self._progress(size)
        with self._telling:
            self._reservation.written += size

    def received(self, size: int) -> None:
        """So many bytes came from the origin; raises as `must_go_on` does."""
        self.must_go_on()
        self._count(self._kind, size)


class Filling:
    """An ingest of one job while it is being filling."""

    def __init__(
        self,
        context: Context,
        job: Job,
        plan: Plan,
        reservation: Reservation,
        stored: Parked | None,
    ) -> None:
        """``stored`` is the partial that it goes on with."""
        self.job = job
        self.plan = plan
        self.reservation = reservation
        self.ingest = context.store.begin(job.key, resume=stored)
        self.before = None if stored is None else decode_note(stored.note)
        """What the partial says of itself: its source, and what was listed there."""
        self.worth_keeping = True
        """Whether it is to be gone on from when it is left."""
        self._stored = stored
        self._context = context

    async def begin(self, evictions: Evictions) -> None:
        """Have it on the disk.  Must run to its end.  Raises NoSpace, IoError."""
        try:
            await self._context.workers.commit(self.ingest.make)
        except (IoError, NoSpace):
            if self._stored is not None:
                # On the disk it is as it was, if it is there: counted until it is unlinked.
                self._context.partials.park(self._stored, self.reservation)
                evictions.drop_partial(self.job.key)
            raise

    async def fill(self, origin: Origin, bandwidth: Bandwidth) -> tuple[FileEntry, ...]:
        """Bring every file of the plan here; the entries, in order of path.

        Raises OriginFailed, OriginTimeout, DigestMismatch, IoError, NoSpace, or
        what the arrival was refused with meanwhile.
        """
        context = self._context
        counted = context.counters.fetched
        tally = Tally(self.reservation, context.progress.wrote, origin.kind, counted)
        linked, pieces = await completed(context.workers.commit(_prepare, self, tally))
        self.job.bytes_reused = sum(entry.bytes for entry in linked)
        streams = Streams(max(1, STREAM_THREADS // context.options.fetch_concurrency))
        download = Download(
            origin, pieces, bandwidth=bandwidth, received=tally.received, wanted=streams.wanted
        )
        await self._watch(download, streams, pieces)
        entries = [*linked, *download.entries.values()]
        return tuple(sorted(entries, key=lambda entry: entry.path))

    async def _watch(self, download: Download, streams: Streams, pieces: list[Piece]) -> None:
        """Run streams until all is here; leave only when every thread is done."""
        loop = asyncio.get_running_loop()
        running: set[asyncio.Future[None]] = set()
        started, before, since = 0, _present(pieces), loop.time()
        try:
            while not download.complete:
                while started < download.wanted or not running:
                    running.add(self._context.workers.fetch(download.run_stream))
                    started += 1
                period = streams.period(download.latency)
                done, running = await asyncio.wait(running, timeout=period)
                for stream in done:
                    stream.result()
                if download.failure is not None:
                    raise download.failure
                present, now = _present(pieces), loop.time()
                self.job.progressed(self.job.bytes_reused + present, now)
                if now - since >= period:
                    streams.measured((present - before) / (now - since))
                    before, since = present, now
                    started -= max(0, download.wanted - streams.wanted)
                    download.wanted = streams.wanted
        finally:
            # In a thread, since the client of an object store waits for its own.
            await completed(self._context.workers.fetch(download.stop))
            if running:
                await completed(asyncio.wait(running))

    async def leave(self, evictions: Evictions, *, keep: bool) -> None:
        """Park what is worth resuming, abort else; after a publication this does nothing."""
        if self.ingest.settled:
            return
        if (
            keep
            and self.ingest.noted
            and self.reservation.open
            and self.reservation.refusal is None
        ):
            try:
                stored = await self._context.workers.commit(self.ingest.park)
            except (IoError, NoSpace) as error:
                figures = {"key": str(self.job.key), "job": self.job.id, "reason": str(error)}
                log.warning("what was fetched is not kept", extra=figures)
            else:
                # What the disk has of it is what counts from now on.
                self.reservation.written = stored.bytes
                self._context.partials.park(stored, self.reservation)
                self._context.changed.notify()
                return
        await evictions.abort(self.ingest, self.reservation)


@asynccontextmanager
async def filling(
    context: Context, evictions: Evictions, job: Job, plan: Plan, reservation: Reservation
) -> AsyncIterator[Filling]:
    """Begin or resume an ingest; on the way out what is worth it is parked, the rest let go."""
    stored = context.partials.taken(reservation)
    filling = Filling(context, job, plan, reservation, stored)
    keep = False
    try:
        await completed(filling.begin(evictions))
        yield filling
    except (TooLarge, Blocked, DiskFull):
        raise
    except (Exception, asyncio.CancelledError):
        keep = filling.worth_keeping and job.cancelled is None
        raise
    finally:
        await completed(filling.leave(evictions, keep=keep))


def _prepare(filling: Filling, tally: Tally) -> tuple[list[FileEntry], list[Piece]]:
    """Link what is here and open what is to be read.  Blocks."""
    ingest, plan = filling.ingest, filling.plan
    # What is old goes first: the note says of all that is here what it is.
    for file in plan.reads:
        if _is_stale(filling, file):
            figures = {"key": str(filling.job.key), "file": file.path}
            log.warning("a file begins again, since it changed", extra=figures)
            ingest.remove(file.path, wrote=tally.wrote)
    ingest.note(encode_note(filling.job, plan.listing))
    linked = [_linked(ingest, link, tally) for link in plan.links]
    pieces = []
    for file in plan.reads:
        part = ingest.part(
            file.path,
            file.bytes or 0,
            claim=tally.claim,
            wrote=tally.wrote,
            awaited=lambda: filling.job.awaited,
        )
        pieces.append(Piece(file, part))
    return linked, pieces


def _linked(ingest: Ingest, link: Link, tally: Tally) -> FileEntry:
    entry = FileEntry(link.file.path, link.file.bytes or 0, link.file.sha256 or "")
    try:
        return ingest.link(entry, link.generation, link.path, wrote=tally.wrote)
    except FileNotFoundError as error:
        raise LinkGone(str(error), entry.sha256) from error


def _is_stale(filling: Filling, file: RemoteFile) -> bool:
    if filling.before is None:
        return False
    source, listing = filling.before
    was = next((one for one in listing.files if one.path == file.path), None)
    same_source = source == parse_reference(filling.job.source).text
    return was is not None and not unchanged(was, file, same_source=same_source)


def _present(pieces: list[Piece]) -> int:
    """The bytes of the files that are here."""
    return sum(
        piece.part.bytes - sum(stop - start for start, stop in piece.part.missing())
        for piece in pieces
    )
