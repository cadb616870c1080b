"""One app per door, from the table of routes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from weightd.api import adoptions, fetches, models, node, pins, uploads, verify, warm
from weightd.api.desk import Desk
from weightd.api.edge import Fence, Timed, UnreadBodies
from weightd.api.faults import UnknownRoute, WrongMethod
from weightd.api.openapi import describe, options
from weightd.api.problems import problem
from weightd.api.protocol import EdgeProtocol
from weightd.api.routing import (
    ADMIN,
    Answer,
    Door,
    EdgeRoute,
    Handler,
    Route,
    closed,
    sent_path,
)
from weightd.api.token import guarded
from weightd.api.words import json_answer
from weightd.errors import WeightdError


async def get_openapi(request: Request) -> Response:
    return json_answer(request.app.openapi())


ROUTES: Final = (
    *models.ROUTES,
    *pins.ROUTES,
    *fetches.ROUTES,
    *uploads.ROUTES,
    *adoptions.ROUTES,
    *verify.ROUTES,
    *warm.ROUTES,
    *node.ROUTES,
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


def create_app(desk: Desk, door: Door, *, admin: str = "the admin socket") -> FastAPI:
    """The app for one door.

    Every route is known at every door: one that is not open answers
    ``forbidden``, or ``unauthorized`` where a token would open it, and names
    ``admin``, where it is.
    """
    app = FastAPI(
        title="weightd",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Nobody configures OpenTelemetry here, and FastAPI would ask it with every request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.desk = desk
    app.state.admin = admin
    app.router.route_class = EdgeRoute
    for route in ROUTES:
        _install(app, route, door, admin)
        _declare_times(desk, route)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    app.add_exception_handler(WeightdError, _refused)
    app.add_exception_handler(HTTPException, _unrouted)
    app.add_middleware(Fence)
    app.add_middleware(UnreadBodies, limits=desk.limits.drain)
    app.add_middleware(Timed, times=desk.times)
    return app


def protocol_of(desk: Desk, door: Door) -> partial[EdgeProtocol]:
    """What answers each connection at a door, for uvicorn's ``http``."""
    return partial(EdgeProtocol, connections=desk.connections, door=door)


def _install(app: FastAPI, route: Route, door: Door, admin: str) -> None:
    handler = _handler(app.state.desk, route, door, admin)
    app.add_api_route(
        route.path, handler, methods=[route.method], response_class=Response, **options(route)
    )
    if route.method == "GET" and not route.own_head:
        app.add_api_route(
            route.path, handler, methods=["HEAD"], response_model=None, include_in_schema=False
        )


def _handler(desk: Desk, route: Route, door: Door, admin: str) -> Handler:
    """What a route answers at a door."""
    if door in route.doors:
        return route.handler
    refusal = closed(route, door, admin)
    if route.by_token(door):
        return guarded(route.handler, desk.token, admin, refusal if door == "public" else None)
    return refusal


def _declare_times(desk: Desk, route: Route) -> None:
    for status in route.answers:
        desk.times.declare(route.path, route.method, status)


def _described(app: FastAPI) -> dict[str, object]:
    if app.openapi_schema is None:
        app.openapi_schema = describe(app, ROUTES)
    return app.openapi_schema


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, WeightdError)
    return problem(error)


async def _unrouted(request: Request, _: Exception) -> Response:
    """What the router refuses: a path that is none, or a method that the path does not take."""
    path = sent_path(request.scope)
    allowed = _methods_at(path, ROUTES)
    if not allowed:
        return problem(UnknownRoute(path[:200]))
    return problem(WrongMethod(request.method, allowed))


def _methods_at(path: str, routes: Iterable[Route]) -> tuple[str, ...]:
    methods = {route.method for route in routes if route.pattern.fullmatch(path)}
    if "GET" in methods:
        methods.add("HEAD")
    return tuple(sorted(methods))
