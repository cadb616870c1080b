"""What every request passes on its way in and out: its time, its unread body, its last resort.

Plain ASGI: a middleware that wraps the answer in a task of its own would cost
more than a lookup does, and would break the streams.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weightd.api.faults import Internal
from weightd.api.metrics import METHODS, UNKNOWN, RequestTimes
from weightd.api.problems import problem

_log = logging.getLogger(__name__)


class Timed:
    """Counts each request under its route's template, its method and its status."""

    def __init__(self, app: ASGIApp, times: RequestTimes) -> None:
        self._app = app
        self._times = times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        begun = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path_format", UNKNOWN)
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            self._times.observe(route, method, status or 500, time.perf_counter() - begun)


class Fence:
    """Turns what nobody foresaw into the problem ``internal``, and logs it with its traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:  # noqa: BLE001 - the last resort
            _log.exception("%s %s failed", scope["method"], scope.get("raw_path"))
            if not begun:
                await problem(Internal())(scope, receive, send)
            # Returning from a begun answer without its end makes the server close the connection.


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """How much of a refused body is taken and thrown away, so that its sender sees the answer.

    ``bytes`` and ``seconds`` bound the whole; ``idle`` is how long, in seconds,
    a sender may pause.
    """

    bytes: int = 256 * 1024 * 1024
    seconds: float = 10.0
    idle: float = 2.0


class UnreadBodies:
    """Sends an answer at once although a body is still coming, then drains that body and closes.

    A client without ``Expect: 100-continue`` sends all it has before it looks;
    were the connection closed under it, the answer would be lost.  What is not
    read to its end is never taken for a next request: the connection closes.
    """

    def __init__(self, app: ASGIApp, limits: DrainLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _declares_body(scope):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self._limits)
        await self._app(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request with a body, and whether all of that body was received."""

    def __init__(self, receive: Receive, send: Send, limits: DrainLimits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._over = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._over = True
        return message

    async def send(self, message: Message) -> None:
        if self._over:
            await self._send(message)
        elif message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (b"connection", b"close")]
            await self._send({**message, "headers": headers})
        elif message.get("more_body", False):
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._drain()
            await self._send({"type": "http.response.body"})

    async def _drain(self) -> None:
        taken = 0
        try:
            async with asyncio.timeout(self._limits.seconds):
                while not self._over and taken < self._limits.bytes:
                    async with asyncio.timeout(self._limits.idle):
                        message = await self.receive()
                    taken += len(message.get("body", b""))
        except TimeoutError:
            _log.info("a refused body was cut after %d bytes", taken)


def _declares_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")):
            return True
    return False
