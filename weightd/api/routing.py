"""Routes as a table: each names its doors, what it takes, what it answers and how it can refuse.

The OpenAPI description is made from the same lines (`weightd.api.openapi`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, request_response
from starlette.types import Scope

from weightd.api.faults import Internal
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


class EdgeRoute(APIRoute):
    """Matches the path as it was sent, so that percent-decoding happens once and after routing.

    Handlers read the request and make the response themselves, so they are
    called without what FastAPI does for endpoints that leave that to it: it
    would cost a lookup as much as the lookup.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = request_response(endpoint)
        self._sent = compiled(path)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        found = self._sent.fullmatch(sent_path(scope))
        if found is None:
            return Match.NONE, {}
        match = Match.FULL if scope["method"] in (self.methods or ()) else Match.PARTIAL
        child = {"endpoint": self.endpoint, "path_params": found.groupdict(), "route": self}
        return match, child


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

    async def refuse(_: Request) -> Response:
        raise Forbidden(f"{route.method} {route.path} is not answered at the {door} door", admin)

    return refuse
