"""What answers a request: every route at its own path, and nothing else anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from tests.api.serving import Served
from weightd.api.app import ROUTES
from weightd.api.faults import UnknownRoute, WrongMethod
from weightd.api.metrics import UNKNOWN
from weightd.api.routing import Found, Handler, Route, Table

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS")


def handler_of(route: Route) -> Handler:
    async def answer(_: Request) -> Response:
        return Response(f"{route.method} {route.path}")

    return answer


HANDLERS = {(route.method, route.path): handler_of(route) for route in ROUTES}
TABLE = Table([(route, HANDLERS[route.method, route.path]) for route in ROUTES])


def naive(method: str, path: str) -> tuple[Handler | None, set[str]]:
    """The first line that takes both, and the methods of all that take the path."""
    allowed, chosen = set(), None
    for route in ROUTES:
        if route.pattern.fullmatch(path):
            taken = {route.method}
            if route.method == "GET" and not route.own_head:
                taken.add("HEAD")
            allowed |= taken
            if chosen is None and method in taken:
                chosen = HANDLERS[route.method, route.path]
    return chosen, allowed


PIECES = sorted({piece for route in ROUTES for piece in route.path.split("/")} | {"a", "%2F", "@"})


@given(
    st.sampled_from(METHODS),
    st.lists(st.sampled_from(PIECES), max_size=6).map("/".join)
    | st.sampled_from([route.path for route in ROUTES])
    | st.text(max_size=20),
)
async def test_the_table_finds_what_its_lines_say(method: str, path: str) -> None:
    found, (chosen, allowed) = TABLE.find(method, path), naive(method, path)
    if chosen is not None:
        assert found.handler is chosen
        return
    with pytest.raises(WrongMethod if allowed else UnknownRoute) as refused:
        await found.handler(Request({"type": "http"}))
    if isinstance(refused.value, WrongMethod):
        assert refused.value.allowed == tuple(sorted(allowed))
    else:
        assert found.path == UNKNOWN


def test_parameters_come_as_they_were_sent() -> None:
    found: Found = TABLE.find("PUT", "/v1/pins/a%3A1/org%2Fm/x@y")
    assert (found.path, found.parameters) == (
        "/v1/pins/{holder}/{key}",
        {"holder": "a%3A1", "key": "org%2Fm/x@y"},
    )


async def test_each_request_is_counted_under_its_path_and_method(served: Served) -> None:
    await served.put("model", 10)
    for method, path in (
        ("GET", "/v1/models/model"),
        ("HEAD", "/v1/models/model"),
        ("HEAD", "/v1/status"),
        ("PATCH", "/v1/models/model"),
        ("GET", "/nowhere"),
    ):
        await served.client.request(method, path)
    lines = (await served.client.get("/metrics")).text.splitlines()
    for labels in (
        'method="PUT",route="/v1/models/{key}",status="201"',
        'method="GET",route="/v1/models/{key}",status="200"',
        'method="HEAD",route="/v1/models/{key}",status="200"',
        'method="HEAD",route="/v1/status",status="200"',
        'method="unknown",route="/v1/models/{key}",status="405"',
        'method="GET",route="unknown",status="404"',
    ):
        counted = [one for one in lines if one.startswith("weightd_request_seconds_count{")]
        assert any(set(labels.split(",")) <= set(one[30:-5].split(",")) for one in counted), labels
