"""What every route works with: the cache, the limits, the request times.

One desk serves all doors of a daemon, so that limits hold over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from weightd.api.connections import Connections
from weightd.api.edge import DrainLimits
from weightd.api.metrics import RequestTimes
from weightd.api.page.sheet import Sheet
from weightd.api.token import Token
from weightd.cache import Overview, Snapshot, State, Wanted, WeightCache
from weightd.errors import Starting, TooMany
from weightd.request_id import RequestIds


@dataclass(frozen=True, slots=True)
class Limits:
    """``puts`` is how many may be under way at once, besides those that wait for room.

    ``connections`` is how many there may be over all doors.

    Times are in seconds: ``idle_timeout`` is how long a peer may send or take
    nothing, ``probe_timeout`` how long the cache may take to show that it lives.
    """

    puts: int = 64
    connections: int = 1024
    idle_timeout: float = 60.0
    probe_timeout: float = 5.0
    drain: DrainLimits = field(default_factory=DrainLimits)


class Desk:
    """See the module's docstring."""

    def __init__(
        self,
        cache: WeightCache,
        limits: Limits | None = None,
        token: Token | None = None,
        socket: Path | None = None,
    ) -> None:
        """``socket`` is where the admin socket is, for those who are told of it."""
        self.limits = Limits() if limits is None else limits
        self.token = Token() if token is None else token
        self.times = RequestTimes()
        self.ids = RequestIds()
        self.sheet = Sheet()
        self.socket = socket
        self.connections = Connections(self.limits.connections, self.limits.idle_timeout)
        self._cache = cache
        self._puts = 0

    @property
    def cache(self) -> WeightCache:
        """The cache, once it knows what it holds.  Raises Starting before that."""
        if self._cache.state == "starting":
            raise Starting
        return self._cache

    @property
    def state(self) -> State:
        return self._cache.state

    @property
    def trouble(self) -> str | None:
        """What is wrong with the cache, as the last beat of its pulse found it."""
        return self._cache.pulse.trouble

    async def snapshot(self) -> Snapshot:
        """Every figure of this instant, while starting too.  Raises IoError."""
        return await self._cache.snapshot()

    async def overview(self, wanted: Wanted) -> Overview:
        """What the page shows beside the figures, while starting too."""
        return await self._cache.overview(wanted)

    @contextmanager
    def place_for_put(self) -> Iterator[None]:
        """Take one of the places for puts.  Raises TooMany when all are taken.

        One that waits for room has none: the cache bounds how many wait.
        """
        if self._puts - self._cache.waiting >= self.limits.puts:
            raise TooMany("puts under way", self.limits.puts)
        self._puts += 1
        try:
            yield
        finally:
            self._puts -= 1


def desk_of(request: Request) -> Desk:
    """The desk of the app that a request came to."""
    desk: Desk = request.app.state.desk
    return desk
