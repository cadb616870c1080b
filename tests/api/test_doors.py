"""What is open where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.serving import problem, serving
from weightd.api.app import ROUTES
from weightd.api.routing import Door

OPEN: dict[Door, set[str]] = {
    "read-only": {"/metrics", "/healthz", "/readyz", "/v1/status", "/v1/models", "/"},
    "public": {"/metrics", "/healthz", "/readyz"},
}


@pytest.mark.parametrize("door", ["read-only", "public"])
async def test_a_door_answers_what_it_should_and_names_the_other(root: Path, door: Door) -> None:
    async with serving(root, door=door) as served:
        for route in ROUTES:
            target = route.path.replace("{key}", "m").replace("{holder}", "h")
            answer = await served.client.request(route.method, target)
            if route.path in OPEN[door]:
                assert answer.status_code == 200, route
            else:
                assert answer.status_code == 403, route
                if route.method != "HEAD":
                    document = problem(answer)
                    assert document["code"] == "forbidden"
                    assert "admin socket" in document["door"]


@pytest.mark.parametrize("door", ["read-only", "public"])
async def test_head_and_unknown_routes_are_the_same_at_every_door(root: Path, door: Door) -> None:
    async with serving(root, door=door) as served:
        assert (await served.client.head("/metrics")).status_code == 200
        assert (await served.client.head("/v1/pins")).status_code == 403
        assert (await served.client.get("/v2")).status_code == 404
        assert (await served.client.patch("/v1/status")).status_code == 405


async def test_a_refused_put_changes_nothing(root: Path) -> None:
    async with serving(root, door="read-only") as served:
        answer = await served.put("m", 300_000)
        assert problem(answer)["code"] == "forbidden"
        assert (await served.client.get("/v1/models")).json()["models"] == []
