"""What every route works with: the cache, the limits, the request times.

One desk serves all doors of a daemon, so that limits hold over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from weightd.api.edge import DrainLimits
from weightd.api.metrics import RequestTimes
from weightd.errors import TooMany

if TYPE_CHECKING:
    from weightd.cache import WeightCache


@dataclass(frozen=True, slots=True)
class Limits:
    """``puts`` is how many bodies may arrive at once; times are in seconds.

    ``idle_timeout`` is how long a peer may send or take nothing, and
    ``probe_timeout`` how long the cache may take to show that it lives.
    """

    puts: int = 64
    idle_timeout: float = 60.0
    probe_timeout: float = 5.0
    drain: DrainLimits = field(default_factory=DrainLimits)


@dataclass(slots=True)
class Desk:
    """See the module's docstring."""

    cache: WeightCache
    limits: Limits = field(default_factory=Limits)
    times: RequestTimes = field(default_factory=RequestTimes)
    puts_under_way: int = 0

    @contextmanager
    def place_for_put(self) -> Iterator[None]:
        """Take one of the places for puts.  Raises TooMany when all are taken."""
        if self.puts_under_way >= self.limits.puts:
            raise TooMany("puts", self.limits.puts)
        self.puts_under_way += 1
        try:
            yield
        finally:
            self.puts_under_way -= 1


def desk_of(request: Request) -> Desk:
    """The desk of the app that a request came to."""
    desk: Desk = request.app.state.desk
    return desk
