"""The current generation of each key, and the keys in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import islice

from weightd.ledger.generations import Generation
from weightd.model import Key


class Currents(dict[Key, Generation]):
    """Changed by assignment and ``del`` alone, of which the order hears.

    Keys are in order as they are written; a page of them costs what it holds,
    however many there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._order: list[tuple[str, Key]] = []

    def __setitem__(self, key: Key, generation: Generation) -> None:
        if key not in self:
            insort(self._order, (str(key), key))
        super().__setitem__(key, generation)

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        del self._order[bisect_left(self._order, (str(key),))]

    def after(self, key: Key | None, count: int) -> list[Key]:
        """The first ``count`` keys that follow ``key``, resident or not; None is before all."""
        start = 0 if key is None else bisect_right(self._order, (str(key), key))
        return [one for _, one in islice(self._order, start, start + count)]
