"""To learn, while an answer is sent, that nobody is left to read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


@asynccontextmanager
async def listening(receive: Receive) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set once the peer has gone; a body it still sends is thrown away."""
    gone = asyncio.Event()
    listener = asyncio.create_task(_listen(receive, gone), name="hang-up listener")
    try:
        yield gone
    finally:
        listener.cancel()
        await asyncio.wait({listener})


async def _listen(receive: Receive, gone: asyncio.Event) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        gone.set()
