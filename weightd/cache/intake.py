"""An arrival's side in its worker thread: metered, held to its promise, turned into files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from weightd.cache.admission import Admission
from weightd.cache.records import PutTerms, Source
from weightd.errors import InvalidRequest
from weightd.ledger import Reservation
from weightd.model import FileEntry, Key, file_path_fault
from weightd.store import Ingest

GROWTH_STEP: Final = 16 << 20
"""How many bytes an arrival of unknown size asks for beyond what it needs next."""


class Meter:
    """Counts what a body brings, holds it to its declared most, ends it when it is refused."""

    def __init__(
        self,
        source: Source,
        reservation: Reservation,
        terms: PutTerms,
        count: Callable[[int], None],
    ) -> None:
        self._source = source
        self._reservation = reservation
        self._most = terms.most
        # A file that nobody named is meant to be a model, and no model is a tar archive.
        self._single = not terms.archive and terms.file is None
        self._count = count
        self._read = 0

    def readinto(self, buffer: memoryview) -> int:
        if self._reservation.refusal is not None:
            raise self._reservation.refusal
        size = self._source.readinto(buffer)
        if self._read == 0 and self._single and bytes(buffer[257 : min(size, 262)]) == b"ustar":
            raise InvalidRequest(
                what="Content-Type",
                reason="the body is a tar archive; declare application/x-tar to have it unpacked, "
                "or name it by ?file= to have it kept as it is",
            )
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


def receive(
    ingest: Ingest, source: Source, allowance: Allowance, key: Key, terms: PutTerms
) -> tuple[FileEntry, ...]:
    """Let the body become files.  Blocks; the arrival's thread calls it."""
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
    if terms.length is None and entry.bytes == 0:
        # What a pipe sends whose producer failed; a file meant to be empty declares so.
        raise InvalidRequest(
            what="body",
            reason="it is empty; did its producer fail? A file meant to be empty says so by "
            "Content-Length: 0",
        )
    return (entry,)


def grows(terms: PutTerms) -> bool:
    """Whether the blocks needed can pass what was declared: files of an archive are rounded up."""
    return terms.archive or (terms.length is None and terms.most is None)


def check(terms: PutTerms) -> None:
    """Raise InvalidRequest for terms that contradict themselves."""
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
