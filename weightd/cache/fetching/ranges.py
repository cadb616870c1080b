"""What of a model is still to be read, and who reads which range of it.

A file that one stream reads is read from its start to its end by one request.
Where a second stream has nothing else to do it takes the bytes a little ahead
of the first, and from then on both take the next bytes that nobody reads: the
file grows from its start, so that its hash, which is taken in that order, is
never far behind.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from weightd.origins.contract import RemoteFile
from weightd.store import Part

CHUNK_MIN_BYTES: Final = 8 << 20
"""A range with less than this left is read to its end by the stream that has it."""

CHUNK_MAX_BYTES: Final = 128 << 20
"""As much as a hash lags behind a stream at most."""

CHUNK_SECONDS: Final = 2.0
"""A chunk is what a stream reads in this time, so that asking for the next one costs little."""

SPLIT_SECONDS: Final = 0.5
"""A range that is read to its end so soon is not shared any more."""

_ALIGNED: Final = 1 << 20


@dataclass(slots=True, eq=False)
class Piece:
    """One file of the model on its way, and what of it no stream reads at the moment.

    ``whole`` says that the origin gives no ranges of it: one stream reads it from its start.
    ``mismatched`` that its content was wrong once and is read a second time, ``restarts`` how
    often it was read from its start because it broke off.
    """

    file: RemoteFile
    part: Part
    whole: bool = False
    mismatched: bool = False
    restarts: int = 0
    reading: int = 0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    shared: bool = False
    """Whether several streams read it, a chunk at a time."""


@dataclass(slots=True, eq=False)
class Range:
    """The bytes from ``start`` on that one stream reads; ``stop`` may be moved meanwhile.

    ``since`` is when it began to, and ``first`` where.
    """

    piece: Piece
    start: int
    stop: int
    since: float
    first: int

    @property
    def left(self) -> int:
        return self.stop - self.start

    def rate(self, now: float) -> float:
        """Bytes a second until now."""
        return (self.start - self.first) / max(now - self.since, 1e-3)


class Ranges:
    """Hands out ranges to streams.

    Every method may be called from any thread.
    """

    def __init__(self, pieces: list[Piece], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._changing = threading.Lock()
        self._clock = clock
        self._pieces = deque(pieces)
        self._active: list[Range] = []
        self._splitting = True
        self._rate = 0.0
        """Bytes a second of the range that ended last."""
        for piece in pieces:
            # An empty list is a file that is all here and only to be sealed.
            piece.waiting.extend(piece.part.missing() or [(piece.part.bytes, piece.part.bytes)])

    def take(self) -> Range | None:
        """A range to read, None when nothing is left to be shared."""
        with self._changing:
            taken = self._next() or self._split()
            if taken is not None:
                taken.piece.reading += 1
                self._active.append(taken)
            return taken

    def advance(self, range: Range, size: int) -> int:
        """``size`` bytes more of the range are here; how many it still has."""
        with self._changing:
            range.start += size
            return range.left

    def end(self, range: Range) -> bool:
        """A stream has read its range, or gives the rest of it back; whether the file is whole."""
        with self._changing:
            self._active.remove(range)
            piece = range.piece
            piece.reading -= 1
            if range.start > range.first:
                self._rate = range.rate(self._clock())
            if range.left > 0:
                self._give_back(piece, range.start, range.stop)
            return not piece.reading and not piece.waiting

    def merge(self, range: Range) -> bool:
        """Give the rest of an ended range to the stream that comes up to it; whether one does.

        For an origin that gives no ranges: what was split off is read by the
        stream it was split off from, which asked for all of it.
        """
        with self._changing:
            piece = range.piece
            self._splitting = False
            before = (one for one in self._active if one.piece is piece)
            reader = next((one for one in before if one.stop == range.start), None)
            rest = next((gap for gap in piece.waiting if gap[0] == range.start), None)
            if reader is None or rest is None:
                return False
            piece.waiting.remove(rest)
            reader.stop = rest[1]
            return True

    def again(self, piece: Piece) -> None:
        """Nobody reads this file now; read it from its start."""
        with self._changing:
            self._put_first(piece)
            piece.waiting.clear()
            piece.waiting.append((0, piece.part.bytes))
            piece.shared = False

    def _give_back(self, piece: Piece, start: int, stop: int) -> None:
        """Nobody reads these bytes now."""
        self._put_first(piece)
        waiting = deque[tuple[int, int]]()
        for gap in sorted([*piece.waiting, (start, stop)]):
            before = waiting.pop() if waiting and waiting[-1][1] == gap[0] else gap
            waiting.append((before[0], gap[1]))
        piece.waiting = waiting

    def _put_first(self, piece: Piece) -> None:
        if not piece.waiting:
            self._pieces.appendleft(piece)

    def _next(self) -> Range | None:
        while self._pieces:
            piece = self._pieces[0]
            if not piece.waiting:
                self._pieces.popleft()
                continue
            if piece.whole and piece.reading:
                return None
            start, stop = piece.waiting.popleft()
            if piece.shared and stop - start > self._chunk:
                upto = start + self._chunk
                piece.waiting.appendleft((upto, stop))
                stop = upto
            return self._range(piece, start, stop)
        return None

    def _split(self) -> Range | None:
        """Some bytes of the range that would take longest, ahead of where its stream is."""
        longest = max(
            (one for one in self._active if not one.piece.whole),
            key=lambda one: one.left,
            default=None,
        )
        if longest is None or not self._splitting or longest.left < self._least(longest):
            return None
        # On a block's boundary, so that no two streams share one.
        middle = longest.start + min(self._chunk, longest.left // 2)
        middle -= middle % _ALIGNED
        stop = longest.stop
        longest.stop = middle
        longest.piece.shared = True
        if stop - middle > 2 * self._chunk:
            self._give_back(longest.piece, middle + self._chunk, stop)
            stop = middle + self._chunk
        return self._range(longest.piece, middle, stop)

    def _range(self, piece: Piece, start: int, stop: int) -> Range:
        return Range(piece, start, stop, self._clock(), start)

    def _least(self, range: Range) -> float:
        """What a range must have left to be worth sharing."""
        return max(CHUNK_MIN_BYTES, SPLIT_SECONDS * range.rate(self._clock()))

    @property
    def _chunk(self) -> int:
        """What the streams take at a time of a file that they share."""
        size = int(CHUNK_SECONDS * self._rate) // _ALIGNED * _ALIGNED
        return min(max(size, CHUNK_MIN_BYTES), CHUNK_MAX_BYTES)
