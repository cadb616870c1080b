"""What of a model is still to be read, and who reads which range of it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from weightd.origins.contract import RemoteFile
from weightd.store import Part

SPLIT_BYTES: Final = 64 << 20
"""A range with less than this left is read to its end by the stream that has it."""


@dataclass(slots=True, eq=False)
class Piece:
    """One file of the model on its way, and what of it no stream reads at the moment.

    ``whole`` says that the origin gives no ranges of it: one stream reads it from its start.
    ``mismatched`` that its content was wrong once and is read a second time.
    """

    file: RemoteFile
    part: Part
    whole: bool = False
    mismatched: bool = False
    reading: int = 0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Range:
    """The bytes from ``start`` on that one stream reads; ``stop`` may be moved ahead meanwhile."""

    piece: Piece
    start: int
    stop: int

    @property
    def left(self) -> int:
        return self.stop - self.start


class Ranges:
    """Hands out ranges to streams, the idle ones taking half of what the busiest has left.

    Every method may be called from any thread.
    """

    def __init__(self, pieces: list[Piece]) -> None:
        self._changing = threading.Lock()
        self._pieces = deque(pieces)
        self._active: list[Range] = []
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
            if range.left > 0:
                if not piece.waiting:
                    self._pieces.appendleft(piece)
                piece.waiting.appendleft((range.start, range.stop))
            return not piece.reading and not piece.waiting

    def merge(self, range: Range) -> bool:
        """Give the rest of an ended range to the stream that comes up to it; whether one does.

        For an origin that gives no ranges: what was split off is read by the
        stream it was split off from, which asked for all of it.
        """
        with self._changing:
            piece = range.piece
            before = (one for one in self._active if one.piece is piece)
            reader = next((one for one in before if one.stop == range.start), None)
            if reader is None or (range.start, range.stop) not in piece.waiting:
                return False
            piece.waiting.remove((range.start, range.stop))
            reader.stop = range.stop
            return True

    def again(self, piece: Piece) -> None:
        """Nobody reads this file now; read it from its start."""
        with self._changing:
            if not piece.waiting:
                self._pieces.appendleft(piece)
            piece.waiting.clear()
            piece.waiting.append((0, piece.part.bytes))

    def _next(self) -> Range | None:
        while self._pieces:
            piece = self._pieces[0]
            if not piece.waiting:
                self._pieces.popleft()
                continue
            if piece.whole and piece.reading:
                return None
            start, stop = piece.waiting.popleft()
            return Range(piece, start, stop)
        return None

    def _split(self) -> Range | None:
        longest = max(
            (one for one in self._active if not one.piece.whole),
            key=lambda one: one.left,
            default=None,
        )
        if longest is None or longest.left < SPLIT_BYTES:
            return None
        # On a block's boundary, so that the two halves share none.
        middle = longest.start + longest.left // 2
        middle -= middle % (1 << 20)
        half = Range(longest.piece, middle, longest.stop)
        longest.stop = middle
        return half
