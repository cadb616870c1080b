"""To learn, while a request is answered, that nobody is left to read the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope

from weightd.api.bodies import RequestBody
from weightd.api.direct import Lender
from weightd.api.protocol import CONNECTION
from weightd.errors import IncompleteBody

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
    return await _unless(_gone(request), act, lambda: not body.begun, body.incomplete)


async def while_there(request: Request, act: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Do ``act``, whose body has been read, but give it up when the peer goes.

    Raises IncompleteBody, which nobody reads.
    """
    return await _unless(_gone(request), act, lambda: True, lambda: IncompleteBody(0, None))


def lender_of(request: Request) -> Lender | None:
    """The connection under a request, None where it is not ours."""
    connection = request.scope.get("extensions", {}).get(CONNECTION)
    return None if connection is None else connection["lender"]


def _gone(request: Request) -> asyncio.Event | None:
    """Set once the peer has gone; None where no connection of ours is under the request."""
    connection = request.scope.get("extensions", {}).get(CONNECTION)
    return None if connection is None else connection["gone"]


async def _unless(
    gone: asyncio.Event | None,
    act: Coroutine[Any, Any, Outcome],
    may_end: Callable[[], bool],
    error: Callable[[], IncompleteBody],
) -> Outcome:
    if gone is None:
        return await act
    acting = asyncio.ensure_future(act)
    leaving = asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait({acting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not acting.done() and may_end():
            acting.cancel()
            await asyncio.wait({acting})
            if acting.cancelled():
                raise error()
        return await acting
    finally:
        leaving.cancel()
        if not acting.done():
            acting.cancel()
            await asyncio.wait({acting})
