"""What every request passes on its way in and out: its route, its time, its unread body.

Plain ASGI and one pass: layers of middleware around a lookup would cost more
than the lookup does, and one that gives the answer a task of its own would
break the streams.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from weightd.api.faults import Internal
from weightd.api.metrics import METHODS, UNKNOWN, RequestTimes
from weightd.api.problems import problem
from weightd.api.routing import Handler, Table, sent_path
from weightd.errors import WeightdError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """How much of a refused body is taken and thrown away, so that its sender sees the answer.

    ``bytes`` and ``seconds`` bound the whole; ``idle`` is how long, in seconds,
    a sender may pause.
    """

    bytes: int = 256 * 1024 * 1024
    seconds: float = 10.0
    idle: float = 2.0


class Edge:
    """Answers the requests of one door by their routes.

    Each is counted under its route's template, its method and its status.  What
    a route raises becomes a problem; what nobody foresaw is the problem
    ``internal``, and is logged with its traceback.
    """

    def __init__(self, table: Table, times: RequestTimes, limits: DrainLimits) -> None:
        self._table = table
        self._times = times
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        method = scope["method"]
        found = self._table.find(method, sent_path(scope))
        scope["path_params"] = found.parameters
        if _declares_body(scope):
            exchange: _Exchange = _ExchangeWithBody(receive, send, self._limits)
        else:
            exchange = _Exchange(receive, send)
        try:
            await _answer(found.handler, scope, exchange, self._times)
        finally:
            label = method if method in METHODS else UNKNOWN
            seconds = time.perf_counter() - begun
            self._times.observe(found.path, label, exchange.status or 500, seconds)


async def _answer(handler: Handler, scope: Scope, exchange: _Exchange, times: RequestTimes) -> None:
    try:
        response = await handler(Request(scope, exchange.receive))
        await response(scope, exchange.receive, exchange.send)
    except Exception as error:  # noqa: BLE001 - the last resort
        known = isinstance(error, WeightdError) and not exchange.status
        if not known:
            _log.exception("%s %s failed", scope["method"], scope["raw_path"])
        # Returning from a begun answer without its end makes the server close the connection.
        if not exchange.status:
            refusal = error if isinstance(error, WeightdError) else Internal()
            times.count_problem(refusal.code)
            await problem(refusal)(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request without a body and its answer, whose ``status`` is 0 until it began."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.receive = receive
        self.status = 0
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class _ExchangeWithBody(_Exchange):
    """Sends an answer at once although a body is still coming, then drains that body and closes.

    A client without ``Expect: 100-continue`` sends all it has before it looks;
    were the connection closed under it, the answer would be lost.  What is not
    read to its end is never taken for a next request: the connection closes.
    """

    def __init__(self, receive: Receive, send: Send, limits: DrainLimits) -> None:
        super().__init__(self._received, send)
        self._receive = receive
        self._limits = limits
        self._over = False

    async def _received(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._over = True
        return message

    async def send(self, message: Message) -> None:
        if self._over:
            await super().send(message)
        elif message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (b"connection", b"close")]
            await super().send({**message, "headers": headers})
        elif message.get("more_body", False):
            await super().send(message)
        else:
            await super().send({**message, "more_body": True})
            await self._drain()
            await super().send({"type": "http.response.body"})

    async def _drain(self) -> None:
        taken = 0
        try:
            async with asyncio.timeout(self._limits.seconds):
                while not self._over and taken < self._limits.bytes:
                    async with asyncio.timeout(self._limits.idle):
                        message = await self._received()
                    taken += len(message.get("body", b""))
        except TimeoutError:
            _log.info("a refused body was cut after %d bytes", taken)


def _declares_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")):
            return True
    return False
