"""One HTTP server per door, on one loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn

from weightd.api import EdgeProtocol

_KEEP_ALIVE: Final = 75
"""Seconds an idle connection is kept: longer than probes and scrapers stay away."""

_CUT_OFF_WITHIN: Final = 3
"""Seconds for requests that were cut off to learn that their peer is gone."""

_CANCELLED_WITHIN: Final = 5.0
"""Seconds for requests that were cut off at the end of the drain to put things in order."""


class Door(uvicorn.Server):
    """A server that leaves signals alone and knows what it has under way.

    On a ``passed`` socket others listen, too: the next instance of the daemon takes who
    connects once this one has stopped to.
    """

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        protocol: Callable[..., EdgeProtocol],
        passed: bool = False,
    ) -> None:
        # uvicorn asks for a class, and only calls it.
        made: Any = protocol
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=made,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE,
            )
        )
        self._listener = listener
        self.passed = passed
        self.opened = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to the daemon."""
        yield

    async def answer(self) -> None:
        """Serve until `leave` was called and the last response is out."""
        await self.serve(sockets=[self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.opened.set()

    async def hand_over(self) -> list[asyncio.Future[None]]:
        """Take no further connection, and hear who has one to the end of his request.

        The futures are done when they were heard; each is bounded, see `EdgeProtocol.hand_over`.
        """
        for server in self.servers:
            server.close()
        # Who was taken in this turn of the loop becomes a connection in the next.
        for _ in range(2):
            await asyncio.sleep(0)
        return [one.hand_over() for one in self._connections()]

    def _connections(self) -> list[EdgeProtocol]:
        found = []
        for connection in list(self.server_state.connections):
            assert isinstance(connection, EdgeProtocol)
            found.append(connection)
        return found

    def under_way(self) -> frozenset[asyncio.Task[None]]:
        """The requests that are being answered now."""
        return frozenset(self.server_state.tasks)

    def cut_off(self) -> None:
        """Close every connection; each request learns that its peer is gone, and tidies up."""
        for connection in self._connections():
            connection.transport.abort()

    def leave(self, within: float) -> None:
        """Take no further connection; cut off what is not answered ``within`` seconds."""
        # Whoever loses his peer tidies up by himself. uvicorn cancels who does not do that in
        # time, and logs it as a failure.
        asyncio.get_running_loop().call_later(within, self.cut_off)
        self.config.timeout_graceful_shutdown = max(1, round(within)) + _CUT_OFF_WITHIN
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # uvicorn cancels what is late and goes; what it cancelled still has to let go of things.
        if late := list(self.server_state.tasks):
            await asyncio.wait(late, timeout=_CANCELLED_WITHIN)
