"""Routes as a table: each names its doors, what it takes, what it answers and how it can refuse.

The OpenAPI description is made from the same lines (`weightd.api.openapi`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from weightd.api.faults import Internal, UnknownRoute, WrongMethod
from weightd.api.metrics import UNKNOWN
from weightd.errors import (
    Forbidden,
    InvalidKey,
    InvalidRequest,
    Starting,
    Unauthorized,
    WeightdError,
)
from weightd.wire.requests import NoQuery
from weightd.wire.requests import Request as RequestShape

Door: TypeAlias = Literal["admin", "replica", "read-only", "public", "network"]
"""Where a request came in: the admin socket, the socket for replicas, the loopback listener, a
listener on the network, or the one there that answers whatever is asked with a token."""

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

ADMIN: Final[frozenset[Door]] = frozenset({"admin"})
REPLICA: Final[frozenset[Door]] = frozenset({"admin", "replica"})
LOCAL: Final[frozenset[Door]] = frozenset({"admin", "replica", "read-only"})
WATCH: Final[frozenset[Door]] = frozenset({"admin", "read-only"})
PROBES: Final[frozenset[Door]] = frozenset({"admin", "read-only", "public", "network"})

Errors: TypeAlias = tuple[type[WeightdError], ...]

ALWAYS: Final[Errors] = (InvalidRequest, Unauthorized, Forbidden, Internal, Starting)
"""How any route can refuse."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One way in which a route answers well.

    ``shape`` is the JSON it carries, ``line`` that of each line of a stream, ``media``
    further media types with their schemas, ``headers`` the response headers worth telling of.
    """

    description: str
    shape: type[BaseModel] | None = None
    media: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    line: type[BaseModel] | None = None


PATH_ALONE: Final[Mapping[str, dict[str, Any]]] = MappingProxyType(
    {"text/plain": {"type": "string"}}
)
"""The media of an answer that is a record, or as text where the model is."""


@dataclass(frozen=True, slots=True)
class Header:
    """A request header with a meaning for a route; ``schema`` says more than that it is text."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table; ``description`` is for the reader of the OpenAPI document.

    ``body`` is a JSON shape, or media types with schemas for bodies that are
    bytes.  ``headers`` are the request headers with a meaning here.  One that is
    ``on_node`` is about files of the user who asks, whom only a unix socket tells.
    One ``for_browsers`` takes the token as a password too, since a browser can ask for no other.
    """

    method: str
    path: str
    handler: Handler
    doors: frozenset[Door]
    summary: str
    answers: dict[int, Answer]
    errors: Errors = ()
    description: str = ""
    query: type[RequestShape] = NoQuery
    body: type[RequestShape] | dict[str, dict[str, Any]] | None = None
    headers: tuple[Header, ...] = ()
    own_head: bool = False
    on_node: bool = False
    for_browsers: bool = False

    def by_token(self, door: Door) -> bool:
        """Whether it is open at a door on the network to those who show the token."""
        if self.on_node:
            return False
        return door == "network" or (door == "public" and "read-only" in self.doors)

    @property
    def pattern(self) -> re.Pattern[str]:
        return compiled(self.path)

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def all_errors(self) -> Errors:
        key = (InvalidKey,) if "key" in self.parameters else ()
        return (*key, *self.errors, *ALWAYS)


class Found(NamedTuple):
    """What answers a request: of which ``path`` of the table, and with which parameters of it."""

    handler: Handler
    path: str
    parameters: dict[str, str]


class Table:
    """Finds what answers a request, by its path as it was sent.

    So percent-decoding happens once, and after routing.  Paths are tried in
    the table's order.
    """

    def __init__(self, handlers: Iterable[tuple[Route, Handler]]) -> None:
        self._paths: dict[str, dict[str, Handler]] = {}
        for route, handler in handlers:
            methods = self._paths.setdefault(route.path, {})
            methods[route.method] = handler
            if route.method == "GET" and not route.own_head:
                methods["HEAD"] = handler
        self._patterns = [(compiled(path), path) for path in self._paths]

    def find(self, method: str, path: str) -> Found:
        """A path that is none, or does not take the method, is found to be answered so."""
        matching = []
        for pattern, template in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                handler = self._paths[template].get(method)
                if handler is not None:
                    return Found(handler, template, match.groupdict())
                matching.append(template)
        if not matching:
            return Found(_refusing(UnknownRoute(path[:200])), UNKNOWN, {})
        allowed = {one for template in matching for one in self._paths[template]}
        return Found(_refusing(WrongMethod(method, tuple(sorted(allowed)))), matching[0], {})


def _refusing(error: WeightdError) -> Handler:
    async def refuse(_: Request) -> Response:
        raise error

    return refuse


@cache
def compiled(path: str) -> re.Pattern[str]:
    """What a path of the table matches.

    ``{key}`` takes the rest of the path and any other parameter one segment,
    either of them possibly nothing: a name that is empty is told to be bad, not
    answered as an unknown route.
    """
    pattern = re.escape(path).replace(r"\{key\}", "(?P<key>.*)")
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", pattern), re.DOTALL)


def sent_path(scope: Scope) -> str:
    """The path as it was sent, still percent-encoded."""
    raw: bytes = scope["raw_path"]
    return raw.decode("latin-1")


def closed(route: Route, door: Door, admin: str) -> Handler:
    """What a route answers at a door where it is not open; ``admin`` names the one where it is."""
    reason = f"{route.method} {route.path} is not answered at the {door} door"
    if door == "public" and route.by_token(door):
        reason += " without a token, and token_file names none"

    async def refuse(_: Request) -> Response:
        raise Forbidden(reason, admin)

    return refuse
