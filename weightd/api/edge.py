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

from weightd.api import log_lines
from weightd.api.faults import Internal
from weightd.api.metrics import METHODS, UNKNOWN, RequestTimes
from weightd.api.problems import problem
from weightd.api.routing import Found, Table, sent_path
from weightd.errors import WeightdError
from weightd.request_id import HEADER, REQUEST_ID, RequestIds, accepted

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

    Each is counted under its route's template, its method and its status, and has an id: the
    caller's, or one that is made here; the answer names it, and so does the log.  What
    a route raises becomes a problem; what nobody foresaw is the problem
    ``internal``, and is logged with its traceback.
    """

    def __init__(
        self, table: Table, times: RequestTimes, ids: RequestIds, limits: DrainLimits
    ) -> None:
        self._table = table
        self._times = times
        self._limits = limits
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        method = scope["method"]
        found = self._table.find(method, sent_path(scope))
        scope["path_params"] = found.parameters
        declares_body, given = _read(scope)
        id = given or self._ids.new()
        # For this request's own task, and what it begins.
        REQUEST_ID.set(id)
        if declares_body:
            exchange: _Exchange = _ExchangeWithBody(receive, send, id, self._limits)
        else:
            exchange = _Exchange(receive, send, id)
        try:
            await _answer(found, scope, exchange, self._times)
        finally:
            label = method if method in METHODS else UNKNOWN
            seconds = time.perf_counter() - begun
            self._times.observe(found.path, label, exchange.status or 500, seconds)
            if log_lines.are_requests_told():
                log_lines.tell_request(scope, found.path, exchange.status, exchange.fields, seconds)


async def _answer(found: Found, scope: Scope, exchange: _Exchange, times: RequestTimes) -> None:
    try:
        response = await found.handler(Request(scope, exchange.receive))
        await response(scope, exchange.receive, exchange.send)
    except Exception as error:  # noqa: BLE001 - the last resort
        known = isinstance(error, WeightdError) and not exchange.status
        if not known:
            figures = {"method": scope["method"], "path": sent_path(scope)}
            _log.exception("a request failed; this is a bug", extra=figures)
        # Returning from a begun answer without its end makes the server close the connection.
        if not exchange.status:
            refusal = error if isinstance(error, WeightdError) else Internal()
            times.count_problem(refusal.code)
            log_lines.tell_refusal(refusal, scope["method"], found.path, found.parameters)
            await problem(refusal)(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request without a body and its answer, whose ``status`` is 0 until it began.

    ``id`` goes out with the answer, whose header ``fields`` are.
    """

    def __init__(self, receive: Receive, send: Send, id: str) -> None:
        self.receive = receive
        self.status = 0
        self.fields: list[tuple[bytes, bytes]] = []
        self._id = id
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.fields = [*message.get("headers", ()), (HEADER, self._id.encode())]
            message = {**message, "headers": self.fields}
        await self._send(message)


class _ExchangeWithBody(_Exchange):
    """Sends an answer at once although a body is still coming, then drains that body and closes.

    A client without ``Expect: 100-continue`` sends all it has before it looks;
    were the connection closed under it, the answer would be lost.  What is not
    read to its end is never taken for a next request: the connection closes.
    """

    def __init__(self, receive: Receive, send: Send, id: str, limits: DrainLimits) -> None:
        super().__init__(self._received, send, id)
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
            _log.info("a refused body was cut", extra={"bytes": taken})


def _read(scope: Scope) -> tuple[bool, str | None]:
    """Whether a body is declared, and the id that the caller gave, if it may be one."""
    declares_body, id = False, None
    for name, value in scope["headers"]:
        if name == HEADER:
            id = accepted(value)
        elif name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")):
            declares_body = True
    return declares_body, id
