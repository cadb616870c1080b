"""One app per door, from the table of routes."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from typing import Any, Final

from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weightd.api import adoptions, fetches, models, node, pins, uploads, verify, warm
from weightd.api.desk import Desk
from weightd.api.edge import Edge
from weightd.api.openapi import describe
from weightd.api.page import routes as page
from weightd.api.problems import TABLE
from weightd.api.protocol import EdgeProtocol
from weightd.api.routing import ADMIN, Answer, Door, Handler, Route, Table, closed
from weightd.api.token import guarded
from weightd.api.words import json_answer


async def get_openapi(_: Request) -> Response:
    return json_answer(await asyncio.to_thread(described))


ROUTES: Final = (
    *models.ROUTES,
    *pins.ROUTES,
    *fetches.ROUTES,
    *uploads.ROUTES,
    *adoptions.ROUTES,
    *verify.ROUTES,
    *warm.ROUTES,
    *node.ROUTES,
    *page.ROUTES,
    Route(
        "GET",
        "/openapi.json",
        get_openapi,
        ADMIN,
        "This description",
        {200: Answer("OpenAPI 3.1.", media={"application/json": {"type": "object"}})},
    ),
)
"""Every route there is; the hot ones come first, since they are tried in order."""


@cache
def described() -> dict[str, Any]:
    """What `/openapi.json` answers, made when it is first asked for.  Takes most of a second."""
    return describe(ROUTES)


class App:
    """One door: described by FastAPI, and answered by an `Edge` from the same table.

    FastAPI would answer as well, through layers that cost a lookup several times its own work.
    ``state`` is what Starlette's requests find as that of their app.
    """

    def __init__(self, desk: Desk, door: Door, admin: str) -> None:
        self.state = State({"desk": desk, "admin": admin, "door": door})
        handlers = [(route, _handler(desk, route, door, admin)) for route in ROUTES]
        self._edge = Edge(Table(handlers), desk.times, desk.ids, desk.limits.drain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self._edge(scope, receive, send)


def create_app(desk: Desk, door: Door, *, admin: str = "the admin socket") -> App:
    """The app for one door, which takes nothing but HTTP.

    Every route is known at every door: one that is not open answers
    ``forbidden``, or ``unauthorized`` where a token would open it, and names
    ``admin``, where it is.
    """
    for route in ROUTES:
        for status in route.answers:
            desk.times.declare(route.path, route.method, status)
    for error in TABLE:
        desk.times.declare_problem(error.code)
    return App(desk, door, admin)


def protocol_of(desk: Desk, door: Door) -> partial[EdgeProtocol]:
    """What answers each connection at a door, for uvicorn's ``http``."""
    return partial(
        EdgeProtocol, connections=desk.connections, ids=desk.ids, times=desk.times, door=door
    )


def _handler(desk: Desk, route: Route, door: Door, admin: str) -> Handler:
    """What a route answers at a door."""
    if door in route.doors:
        return route.handler
    refusal = closed(route, door, admin)
    if route.by_token(door):
        otherwise = refusal if door == "public" else None
        return guarded(route.handler, desk.token, admin, otherwise, for_browsers=route.for_browsers)
    return refusal
