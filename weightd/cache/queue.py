"""Who waits for room, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

from weightd.errors import TooMany


@dataclass(slots=True, eq=False)
class Ticket:
    """One place in the queue, taken at ``since`` on the loop's clock.

    ``blocked`` once it stood first and there was no room: before that it is
    just being admitted, and in nobody's way.
    """

    since: float
    blocked: bool = False


class Queue:
    """First come, first served; ``limit`` bounds how many wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # In order; a dictionary, so that leaving from the middle costs nothing.
        self._tickets: dict[Ticket, None] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def join(self, now: float) -> Ticket:
        """Take the last place.  Raises TooMany."""
        if len(self._tickets) >= self._limit:
            raise TooMany(what="arrivals waiting for room", limit=self._limit)
        ticket = Ticket(now)
        self._tickets[ticket] = None
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give the place up; a second time does nothing."""
        self._tickets.pop(ticket, None)

    def is_first(self, ticket: Ticket) -> bool:
        return next(iter(self._tickets), None) is ticket

    def blocked_first(self) -> Ticket | None:
        """The first in the queue, if there is no room for it by now."""
        first = next(iter(self._tickets), None)
        return first if first is not None and first.blocked else None
