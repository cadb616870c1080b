"""Sets of bytes of a file, as few spans as there can be."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Spans:
    """Disjoint half-open spans that do not touch, in order.  Not for several threads at once."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.total = 0
        """Bytes in all spans."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def copy(self) -> Spans:
        """The same spans, which stay as they are now."""
        same = Spans()
        same._starts, same._stops = self._starts.copy(), self._stops.copy()
        same.total = self.total
        return same

    def add(self, start: int, stop: int) -> int:
        """Add a span; how many of its bytes are new."""
        if start >= stop:
            return 0
        first, last = self._touched(start, stop)
        held = sum(self._stops[first:last]) - sum(self._starts[first:last])
        start, stop = self.joined(start, stop)
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]
        self.total += stop - start - held
        return stop - start - held

    def joined(self, start: int, stop: int) -> tuple[int, int]:
        """The one that a span becomes, when it is added, with those it overlaps or touches."""
        first, last = self._touched(start, stop)
        if first == last:
            return start, stop
        return min(start, self._starts[first]), max(stop, self._stops[last - 1])

    def remove(self, start: int, stop: int) -> None:
        """Take a span out; what of it is not there does not matter."""
        for before, after in self.within(start, stop):
            self._cut(before, after)

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """What of a span is not there."""
        found = []
        for before, after in self.within(start, stop):
            if start < before:
                found.append((start, before))
            start = after
        if start < stop:
            found.append((start, stop))
        return found

    def within(self, start: int, stop: int) -> list[tuple[int, int]]:
        """What of a span is there."""
        if start >= stop:
            return []
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        return [
            (max(start, self._starts[index]), min(stop, self._stops[index]))
            for index in range(first, last)
        ]

    def reach(self, start: int) -> int:
        """How far the bytes from ``start`` on are there without a gap."""
        return self.joined(start, start)[1]

    def clear(self) -> None:
        """Take everything out."""
        self._starts.clear()
        self._stops.clear()
        self.total = 0

    def _touched(self, start: int, stop: int) -> tuple[int, int]:
        return bisect_left(self._stops, start), bisect_right(self._starts, stop)

    def _cut(self, start: int, stop: int) -> None:
        """Take out a span that is all in one of these."""
        index = bisect_right(self._starts, start) - 1
        left, right = self._starts[index], self._stops[index]
        kept = [(left, start)] * (left < start) + [(stop, right)] * (stop < right)
        self._starts[index : index + 1] = [one for one, _ in kept]
        self._stops[index : index + 1] = [other for _, other in kept]
        self.total -= stop - start
