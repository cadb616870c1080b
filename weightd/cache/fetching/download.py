"""The threads' side of a fetch: several streams read ranges and write them where they belong.

No byte passes the event loop's thread.  A stream that breaks is opened again
where it broke; a file whose content is wrong is read once more, and what is
right of the others is kept.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from weightd.cache.fetching.bandwidth import Bandwidth
from weightd.cache.fetching.ranges import Piece, Range, Ranges
from weightd.errors import (
    DigestMismatch,
    OriginChanged,
    OriginFailed,
    OriginTimeout,
    WeightdError,
)
from weightd.model import FileEntry
from weightd.origins.contract import FileStream, Origin, Stream
from weightd.store import NoSpace, NotCopied

BUFFER_BYTES: Final = 512 << 10
"""What a stream brings is written down at once when it is so much, ..."""

COPY_BYTES: Final = 16 << 20
"""What the kernel copies at a time, where a file is copied by it."""

GATHER_SECONDS: Final = 0.02
"""... or when it took so long, since a kill loses what is not written down."""

FAILURES_MAX: Final = 5
"""Failures in a row, with nothing read between them, after which an origin is given up.

Also as many times as a file may be read from its start, where it gives no ranges and breaks off.
"""

PAUSE_FIRST_SECONDS: Final = 0.25
PAUSE_MAX_SECONDS: Final = 10.0

RETRY_AFTER_MAX_SECONDS: Final = 30.0
"""An origin that asks for a longer pause is given up: another may have it, and others wait."""


class Download:
    """One attempt to bring the files of ``pieces`` here from one origin."""

    def __init__(
        self,
        origin: Origin,
        pieces: list[Piece],
        *,
        bandwidth: Bandwidth,
        received: Callable[[int], None],
        wanted: int,
    ) -> None:
        """``received`` is told of bytes as they come in, by the threads that read them."""
        self.wanted = wanted
        """How many streams to run; those beyond it end where they are."""
        self.entries: dict[str, FileEntry] = {}
        self.failure: WeightdError | NoSpace | None = None
        self.latency = 0.0
        """The seconds until the last request was answered."""
        self._origin = origin
        self._left = len(pieces)
        self._ranges = Ranges(pieces)
        self._bandwidth = bandwidth
        self._received = received
        self._stopped = threading.Event()
        self._changing = threading.Lock()
        self._running = 0
        self._open: set[Stream] = set()
        self._failures = 0

    @property
    def complete(self) -> bool:
        """Whether every file is here, verified and flushed."""
        return self._left == 0

    def stop(self, failure: WeightdError | NoSpace | None = None) -> None:
        """End every stream soon, from any thread; the first failure is the one that is told.

        The origin is closed, so that those end too that wait for its answer.
        """
        with self._changing:
            if self.failure is None and not self._stopped.is_set():
                self.failure = failure
            self._stopped.set()
            streams = list(self._open)
        for stream in streams:
            stream.close()
        self._origin.close()

    def run_stream(self) -> None:
        """Read one range after the other until there is none for this stream; a thread's work."""
        buffer = memoryview(bytearray(BUFFER_BYTES))
        with self._changing:
            self._running += 1
        try:
            while not self._stopped.is_set() and not self._superfluous():
                range = self._ranges.take()
                if range is None:
                    break
                self._serve(range, buffer)
        except (WeightdError, NoSpace) as error:
            self.stop(error)
        finally:
            with self._changing:
                self._running -= 1

    def _superfluous(self) -> bool:
        with self._changing:
            return self._running > max(1, self.wanted)

    def _serve(self, range: Range, buffer: memoryview) -> None:
        """Read a range as far as it goes, and seal its file when that was the last of it."""
        error: WeightdError | None = None
        try:
            self._read(range, buffer)
        except OriginFailed as failed:
            error = failed
        except OriginTimeout as timeout:
            error = timeout
        finally:
            whole = self._ranges.end(range)
        if whole:
            self._seal(range.piece)
        elif error is not None and not self._stopped.is_set():
            self._failed(range, error)

    def _read(self, range: Range, buffer: memoryview) -> None:
        if range.left <= 0:
            return
        piece = range.piece
        stop = None if piece.whole else range.stop
        asked_at = time.monotonic()
        stream = self._origin.open(piece.file, range.start, stop)
        self.latency = time.monotonic() - asked_at
        with self._changing:
            self._open.add(stream)
        lent = stream if isinstance(stream, FileStream) else None
        try:
            while range.left > 0 and not self._stopped.is_set():
                if lent is not None and self._copied(range, lent):
                    continue
                lent = None
                self._bring(range, stream, buffer[: min(range.left, BUFFER_BYTES)])
        finally:
            with self._changing:
                self._open.discard(stream)
            stream.close()

    def _bring(self, range: Range, stream: Stream, buffer: memoryview) -> None:
        """Read about as much as ``buffer`` holds, and have it where it belongs."""
        size = 0
        until = time.monotonic() + GATHER_SECONDS
        try:
            while size < len(buffer) and (size == 0 or time.monotonic() < until):
                count = stream.readinto(buffer[size:])
                if count == 0:
                    words = f"it ended {range.left - size} bytes before its end"
                    raise OriginFailed(range.piece.file.path, words)
                size += count
        finally:
            # Also what came before it broke off.
            if size:
                range.piece.part.write(range.start, buffer[:size])
                self._arrived(range, size)
        self._bandwidth.take(size, self._stopped)

    def _copied(self, range: Range, stream: FileStream) -> bool:
        """Have the kernel bring some of a file that is open here; whether it does."""

        def take(descriptor: int, at: int, size: int) -> None:
            range.piece.part.copy(range.start, descriptor, at, size)

        try:
            size = stream.lend(take, min(range.left, COPY_BYTES))
        except NotCopied:
            return False
        self._arrived(range, size)
        self._bandwidth.take(size, self._stopped)
        return size > 0

    def _arrived(self, range: Range, size: int) -> None:
        """Count what is where it belongs."""
        self._received(size)
        self._failures = 0
        self._ranges.advance(range, size)

    def _seal(self, piece: Piece) -> None:
        """Verify and flush a file that is all here; a wrong one is read a second time."""
        try:
            entry = piece.part.seal(piece.file.sha256)
        except DigestMismatch:
            if piece.mismatched:
                raise
            piece.mismatched = True
            self._ranges.again(piece)
            return
        with self._changing:
            self.entries[entry.path] = entry
            self._left -= 1

    def _failed(self, range: Range, error: WeightdError) -> None:
        """Go on after a pause, or raise what there is no going on after."""
        if isinstance(error, OriginChanged) or not error.retryable:
            raise error
        if isinstance(error, OriginFailed) and not error.ranges:
            piece = range.piece
            piece.whole = True
            if not self._ranges.merge(range) and not piece.reading:
                piece.restarts += 1
                if piece.restarts >= FAILURES_MAX:
                    raise error
                piece.part.discard()
                self._ranges.again(piece)
            return
        with self._changing:
            self._failures += 1
            failures = self._failures
        if failures >= FAILURES_MAX or (error.retry_after or 0) > RETRY_AFTER_MAX_SECONDS:
            raise error
        pause = min(PAUSE_MAX_SECONDS, PAUSE_FIRST_SECONDS * 2**failures)
        # Full jitter, so that a hundred nodes do not come back at once.
        self._stopped.wait(max(error.retry_after or 0.0, random.uniform(0, pause)))
