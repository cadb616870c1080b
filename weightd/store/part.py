"""One file that arrives in pieces, from several threads, and may go on after a restart."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec, TypeAlias

from weightd.errors import DigestMismatch
from weightd.model import FileEntry
from weightd.store import pages, tree
from weightd.store.content import Content
from weightd.store.copying import copy_all
from weightd.store.faults import reported
from weightd.store.follower import Follower
from weightd.store.manifest_file import Stamp
from weightd.store.pace import ScatteredWriteBack
from weightd.store.pages import Awaited, unawaited
from weightd.store.source import Claim, Wrote
from weightd.store.spans import Spans
from weightd.units import round_up

P = ParamSpec("P")

FLUSH_BYTES: Final = 512 << 20
"""What a power loss may take of one part; a kill takes less than one write of each thread."""


Received: TypeAlias = Callable[[FileEntry, Stamp], None]


class Part:
    """A file of known size on its way.  Made by `Ingest.part`.

    `write` and `missing` may be called by several threads at once; `seal`,
    `discard` and `close` while nobody else does anything with the part.
    """

    def __init__(
        self,
        content: Content,
        path: str,
        bytes: int,
        *,
        claim: Claim,
        wrote: Wrote,
        received: Received,
        awaited: Awaited = unawaited,
    ) -> None:
        """Find what earlier runs left of it.  Raises OSError.

        ``claim`` and ``wrote`` are told of each block once, ``wrote`` of a
        negative size when blocks go again; both by the threads that write.
        ``received`` is told of the file once it is whole, verified and flushed.
        What comes while it is not ``awaited`` leaves no pages in memory.
        """
        self.path = path
        self.bytes = bytes
        self._content = content
        self._root = content.root
        self._claim = claim
        self._wrote = wrote
        self._received = received
        self._awaited = awaited
        self._changing = threading.Lock()
        self._taken = Spans()
        """Here, or being written at the moment."""
        self._here = Spans()
        self._claimed = Spans()
        self._told = Spans()
        self._before = 0
        """The blocks that the part had when it was found; they are counted already."""
        self._exists = False
        self._unflushed = 0
        self._way_flushed = False
        self._descriptor: int | None = None
        self._pace: ScatteredWriteBack | None = None
        self._follower = Follower(path)
        self._failed: OSError | None = None
        """What write-back met: bytes that were written may be gone, and which is not known."""
        self._closed = False
        self._find()

    def missing(self) -> list[tuple[int, int]]:
        """The ranges that are not here yet, in order."""
        with self._changing:
            return self._here.gaps(0, self.bytes)

    def write(self, offset: int, view: memoryview) -> None:
        """Put bytes where they belong; those that are here already stay as they are.

        Raises NoSpace, IoError, and what ``claim`` raises; the bytes are then
        missing as before.
        """

        def put(descriptor: int, start: int, stop: int) -> None:
            _write_all(descriptor, view[start - offset : stop - offset], start)

        self._put(offset, offset + len(view), put)

    def copy(self, offset: int, source: int, at: int, size: int) -> None:
        """Have the kernel put ``size`` bytes of the open file ``source``, from ``at`` on, here.

        Where the filesystem can, the two files share them until one is written to; they
        are counted all the same.  Raises as `write`, and NotCopied, with nothing
        more here than before, where bytes have to be read and written.
        """

        def put(descriptor: int, start: int, stop: int) -> None:
            copy_all(source, start - offset + at, descriptor, start, stop - start)

        self._put(offset, offset + size, put)

    def _put(self, start: int, stop: int, put: Callable[[int, int, int], None]) -> None:
        """Have ``put(descriptor, start, stop)`` write what nobody has written yet."""
        if start < 0 or stop > self.bytes:
            raise ValueError(f"{self.path} has no byte {stop - 1}")
        left = self._take(start, stop)
        try:
            with reported(f"write to {self.path}"):
                descriptor, pace = self._opened()
                while left:
                    start, stop = left[0]
                    put(descriptor, start, stop)
                    self._arrived(start, stop)
                    del left[0]
                    self._written_back(pace.wrote, start, stop)
                if self._flush_is_due():
                    self.flush()
        finally:
            self._give_back(left)

    def seal(self, sha256: str | None) -> FileEntry:
        """Verify the whole file and bring it to stable storage.

        Raises DigestMismatch, NoSpace, IoError.  After a mismatch, and after a
        failed write-back, nothing of the part is here, and it can be written again.
        """
        self._must_be_open()
        if self._here.total != self.bytes:
            raise ValueError(f"{self.bytes - self._here.total} bytes of {self.path} are missing")
        with reported(f"write to {self.path}"):
            descriptor, pace = self._opened()
            self._must_be_sound()
            self._written_back(pace.rest)
        with reported(f"read of {self.path}"):
            actual = self._follower.finish(descriptor, self.bytes)
        if sha256 is not None and actual != sha256:
            self.discard()
            raise DigestMismatch(expected=sha256, actual=actual, file=self.path)
        self._root.reach("ingest.file-written")
        stamp = self._last_flush(descriptor)
        self._root.reach("ingest.file-flushed")
        if not self._awaited():
            pages.forget(descriptor)
        self.close()
        entry = FileEntry(self.path, self.bytes, actual)
        self._received(entry, stamp)
        return entry

    def discard(self) -> None:
        """Give up what is here of the file; it is to be written again.  Raises IoError."""
        self._must_be_open()
        self._follower.stop()
        self._follower = Follower(self.path)
        with reported(f"truncation of {self.path}"):
            with self._changing:
                told = max(self._before, self._told.total)
                counted = max(self._before, self._claimed.total)
                # Counted until they are gone.
                self._before = counted
                for spans in (self._taken, self._here, self._claimed, self._told):
                    spans.clear()
                self._content.progress().forget(self.path)
            self._root.reach("part.forgotten")
            if counted:
                descriptor, _ = self._opened()
                os.ftruncate(descriptor, 0)
                os.ftruncate(descriptor, self.bytes)
                self._pace = ScatteredWriteBack(descriptor, self._unneeded)
        self._before, self._unflushed, self._failed = 0, 0, None
        self._content.counted(-counted)
        if told:
            self._wrote(-told)

    def flush(self) -> None:
        """Bring what is here to stable storage, and write that down.  Raises NoSpace, IoError."""
        if self._descriptor is None:
            return
        with self._changing:
            here = self._here.copy()
            self._unflushed = 0
        with reported(f"fsync of {self.path}"):
            self._must_be_sound()
            self._written_back(os.fdatasync, self._descriptor)
            if not self._way_flushed:
                self._content.flush_way(self.path)
                self._way_flushed = True
            self._content.progress().flushed(self.path, here)
        self._root.reach("part.flushed")

    def leave(self) -> None:
        """Let the file go, with all that is here of it on stable storage.

        Raises NoSpace, IoError; the file is still open then.
        """
        if self._failed is not None:
            self.discard()
        self.flush()
        self.close()

    def close(self) -> None:
        """Let the file go; what is here of it stays.  Idempotent."""
        self._closed = True
        self._follower.stop()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    # -- insides ---------------------------------------------------------------

    def _find(self) -> None:
        """Take over what is on disk and can be relied on; take away what cannot."""
        told = self._content.progress().of(self.path)
        status = self._content.status(self.path)
        if status is None and not told:
            return
        if status is None or not self._is_ours(status) or not told or told[-1][1] > self.bytes:
            self._content.remove(self.path, wrote=self._wrote)
            return
        for start, stop in told:
            for spans in (self._taken, self._here):
                spans.add(start, stop)
            for spans in (self._claimed, self._told):
                spans.add(*self._blocks(start, stop))
        self._before = tree.occupied(status, self._root.block)
        self._exists = True

    def _is_ours(self, status: os.stat_result) -> bool:
        regular = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return regular and status.st_size == self.bytes

    def _opened(self) -> tuple[int, ScatteredWriteBack]:
        """The file, opened or made when it is first needed.  Raises OSError."""
        with self._changing:
            self._must_be_open()
            if self._descriptor is None or self._pace is None:
                self._descriptor = self._open()
                self._pace = ScatteredWriteBack(self._descriptor, self._unneeded)
            return self._descriptor, self._pace

    def _open(self) -> int:
        if self._exists:
            return self._content.reopen(self.path)
        descriptor = self._content.create(self.path)
        try:
            # So that no filesystem reserves more beyond its end than it will have.
            os.ftruncate(descriptor, self.bytes)
        except OSError:
            os.close(descriptor)
            raise
        self._exists = True
        return descriptor

    def _take(self, start: int, stop: int) -> list[tuple[int, int]]:
        """What of a range this thread is to write, its blocks claimed."""
        with self._changing:
            gaps = self._taken.gaps(start, stop)
            blocks = [block for gap in gaps for block in self._claimed.gaps(*self._blocks(*gap))]
            growth = self._grow(self._claimed, gaps)
            for gap in gaps:
                self._taken.add(*gap)
        claimed = False
        try:
            if growth:
                self._claim(growth)
                # Also of a write that fails half way something is on the disk.
                self._content.counted(growth)
            claimed = True
        finally:
            if not claimed:
                self._give_back(gaps, blocks)
        return gaps

    def _give_back(
        self, spans: list[tuple[int, int]], blocks: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Somebody else may write these, and claim these blocks."""
        with self._changing:
            for span in spans:
                self._taken.remove(*span)
            for block in blocks:
                self._claimed.remove(*block)

    def _arrived(self, start: int, stop: int) -> None:
        """Count bytes that were written, write down that they are here, have them hashed."""
        with self._changing:
            self._must_be_sound()
            # Under the lock, so that no shorter span takes the place of a longer one.
            self._content.progress().here(self.path, *self._here.joined(start, stop))
            self._here.add(start, stop)
            growth = self._grow(self._told, [(start, stop)])
            self._unflushed += stop - start
            ready, descriptor = self._here.reach(0), self._descriptor
        self._root.reach("part.written")
        if growth:
            self._wrote(growth)
        if descriptor is not None:
            self._follower.reached(descriptor, ready)

    def _grow(self, blocks: Spans, spans: list[tuple[int, int]]) -> int:
        """Add spans to a count of blocks; how far it passes what was counted before."""
        before = max(self._before, blocks.total)
        for span in spans:
            blocks.add(*self._blocks(*span))
        return max(self._before, blocks.total) - before

    def _blocks(self, start: int, stop: int) -> tuple[int, int]:
        block = self._root.block
        return start // block * block, round_up(stop, block)

    def _unneeded(self) -> int:
        """Up to where nobody needs the pages."""
        return 0 if self._awaited() else self._follower.hashed

    def _flush_is_due(self) -> bool:
        with self._changing:
            if self._unflushed < FLUSH_BYTES:
                return False
            # Whoever comes next need not.
            self._unflushed = 0
            return True

    def _last_flush(self, descriptor: int) -> Stamp:
        """Give the file its mode and group, bring it to stable storage; its stamp."""
        with reported(f"fsync of {self.path}"):
            if self._root.group is not None:
                os.fchown(descriptor, -1, self._root.group)
            os.fchmod(descriptor, self._root.file_mode)
            self._written_back(os.fsync, descriptor)
            self._content.progress().flushed(self.path, self._here)
            return Stamp.of(os.fstat(descriptor))

    def _must_be_open(self) -> None:
        if self._closed:
            # Its descriptor may be another's by now.
            raise RuntimeError(f"{self.path} was closed already")

    def _must_be_sound(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _written_back(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Do what tells of write-back.  Raises OSError; nothing here can be relied on then.

        Pages that could not be written count as clean from now on.
        """
        try:
            call(*args, **kwargs)
        except OSError as error:
            with self._changing:
                self._failed = error
                self._content.progress().forget(self.path)
            raise


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
