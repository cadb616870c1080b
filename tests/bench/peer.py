"""What a hit is held against: the same server with the same options, and a ready-made answer.

``peer KIND SOCKET BODY``, where KIND is ``fastapi`` (a route that returns a
response made beforehand) or ``asgi`` (no framework at all), and BODY a file of
the bytes to answer.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import uvloop
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from weightd.api import EdgeProtocol
from weightd.api.connections import Connections
from weightd.api.metrics import RequestTimes
from weightd.daemon.door import Door
from weightd.daemon.listeners import BACKLOG
from weightd.request_id import RequestIds

# As many and as long as the headers of a lookup.
_HEADERS: Final = {"cache-control": "no-store", "vary": "Accept"}


def with_fastapi(body: bytes) -> ASGIApp:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    ready = Response(body, headers=_HEADERS, media_type="application/json")

    async def answer(_: Request) -> Response:
        return ready

    app.add_api_route("/v1/models/{key:path}", answer, response_class=Response)
    return app


def with_nothing(body: bytes) -> ASGIApp:
    ready = Response(body, headers=_HEADERS, media_type="application/json")

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": ready.raw_headers})
        await send({"type": "http.response.body", "body": body})

    return answer


KINDS: Final[dict[str, Callable[[bytes], ASGIApp]]] = {
    "fastapi": with_fastapi,
    "asgi": with_nothing,
}


async def serve(app: ASGIApp, path: str) -> None:
    """Answer at the door that the daemon uses until SIGTERM."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        listener.bind(path)
        listener.listen(BACKLOG)
        connections = Connections(limit=BACKLOG, idle_timeout=60.0)
        protocol = partial(
            EdgeProtocol,
            connections=connections,
            ids=RequestIds(),
            times=RequestTimes(),
            door="admin",
        )
        door = Door(app, listener, protocol)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, door.leave, 1.0)
        await door.answer()


def main() -> None:
    kind, path, body = sys.argv[1:]
    app = KINDS[kind](Path(body).read_bytes())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(app, path))


if __name__ == "__main__":
    main()
