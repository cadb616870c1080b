"""What arrivals that are not under way left on the disk, to be gone on with later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weightd.ledger.entries import Parked
from weightd.ledger.generations import IllegalMove


class Partials:
    """Every parked arrival, and the bytes they come to."""

    def __init__(self) -> None:
        self.bytes = 0
        # In the order in which they were parked.
        self._parked: dict[Parked, None] = {}

    def add(self, parked: Parked) -> Parked:
        """Enter one, the youngest of all."""
        self._parked[parked] = None
        self.bytes += parked.bytes
        return parked

    def must_be_here(self, parked: Parked) -> None:
        """Raises IllegalMove when ``parked`` was resumed or dropped."""
        if parked not in self._parked:
            raise IllegalMove(f"what was parked of {parked.key} was resumed or dropped")

    def take(self, parked: Parked) -> None:
        """Take one off the books.  Raises IllegalMove when it was resumed or dropped."""
        self.must_be_here(parked)
        del self._parked[parked]
        self.bytes -= parked.bytes

    def put_back(self, parked: Sequence[Parked]) -> None:
        """Enter again what was taken, the oldest first; older than all that is here."""
        self._parked = dict.fromkeys(parked) | self._parked
        self.bytes += sum(one.bytes for one in parked)

    def oldest_first(self) -> Iterator[Parked]:
        """Every one, in the order in which they go."""
        return iter(self._parked)
