"""To learn, while a request is answered, that nobody is left to read the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope

from weightd.api.bodies import RequestBody
from weightd.api.protocol import CONNECTION

Outcome = TypeVar("Outcome")


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


def abort(scope: Scope) -> None:
    """Close the connection under an answer that its peer does not take.

    An orderly close would keep what is unsent until the peer takes it.
    """
    connection = scope.get("extensions", {}).get(CONNECTION)
    if connection is not None:
        connection["abort"]()


async def unless_gone(
    request: Request, body: RequestBody, act: Coroutine[Any, Any, Outcome]
) -> Outcome:
    """Do ``act``, but give it up when the peer goes before its body was asked for.

    That cannot be learned from ``receive``, whose first call asks for the body.
    Nothing is evicted for a peer that stopped waiting; once the body flows its
    own end says the same.  Raises IncompleteBody.
    """
    connection = request.scope.get("extensions", {}).get(CONNECTION)
    if connection is None:
        return await act
    acting = asyncio.ensure_future(act)
    leaving = asyncio.ensure_future(connection["gone"].wait())
    try:
        await asyncio.wait({acting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not acting.done() and not body.begun:
            acting.cancel()
            await asyncio.wait({acting})
            if acting.cancelled():
                raise body.incomplete()
        return await acting
    finally:
        leaving.cancel()
        if not acting.done():
            acting.cancel()
            await asyncio.wait({acting})
