"""Events as NDJSON, one line as each happens, until the end or until nobody reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weightd.api.hangup import abort, listening
from weightd.api.words import event_line
from weightd.cache.records import Event

HEADERS: Final = [
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

_log = logging.getLogger(__name__)


class EventStream(Response):
    """The answer with ``events``, which it closes; None among them is a heartbeat."""

    def __init__(self, events: AsyncIterator[Event | None], idle_timeout: float) -> None:
        self.background = None
        self._events = events
        self._idle_timeout = idle_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
                return
            gone = await stack.enter_async_context(listening(receive))
            await self._stream(scope, send, gone)

    async def _stream(self, scope: Scope, send: Send, gone: asyncio.Event) -> None:
        leaving = asyncio.create_task(gone.wait(), name="event reader's hang-up")
        try:
            while (line := await self._next(leaving)) is not None:
                async with asyncio.timeout(self._idle_timeout):
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body"})
        except TimeoutError:
            abort(scope)
            figures = {"seconds": self._idle_timeout}
            _log.info("a reader of events took nothing and was cut", extra=figures)
        finally:
            leaving.cancel()

    async def _next(self, leaving: asyncio.Task[bool]) -> bytes | None:
        """The next line, or None when the events end or the reader has gone."""
        # What is there already would come first, thousands of times.
        if leaving.done():
            return None
        coming = asyncio.ensure_future(anext(self._events, _END))
        try:
            await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})
        if coming.cancelled():
            return None
        event = coming.result()
        return None if isinstance(event, _End) else event_line(event)


class _End:
    """Stands for the end of the events, which None does not: that is a heartbeat."""


_END: Final = _End()
