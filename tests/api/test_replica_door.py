"""The replica door: look up, read, list, and pin as the user that the kernel says you are."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.api.serving import Served, answering, problem, serving
from weightd.api.app import ROUTES
from weightd.api.routing import Door
from weightd.cache import Options

NOBODY = 65534
ELSEWHERE = [route for route in ROUTES if "replica" not in route.doors]


@asynccontextmanager
async def doors(root: Path, options: Options | None = None) -> AsyncIterator[tuple[Served, Served]]:
    """The admin door and the replica door of one cache, which holds the model ``m``."""
    async with (
        serving(root, options=options) as admin,
        answering(admin.cache, admin.desk, "replica") as replica,
    ):
        await admin.client.put("/v1/models/m", content=b"weights")
        yield admin, replica


async def as_nobody(door: Served, method: str, target: str) -> list[tuple[int, Any]]:
    """Ask as another user; a status and a document for each target that curl's globs make."""
    command = ["curl", "-s", "--unix-socket", str(door.socket), "-X", method]
    command += ["-w", "#%{http_code}\n"]
    ended = await asyncio.to_thread(
        subprocess.run,
        [*command, f"http://weightd{target}"],
        capture_output=True,
        check=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    answers = re.findall(r"(.*?)#(\d{3})\n", ended.stdout.decode(), re.DOTALL)
    return [(int(status), json.loads(body) if body.strip() else None) for body, status in answers]


def test_what_is_open_there() -> None:
    assert {(one.method, one.path) for one in ROUTES if "replica" in one.doors} == {
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{key}"),
        ("HEAD", "/v1/models/{key}"),
        ("GET", "/v1/content/{key}"),
        ("HEAD", "/v1/content/{key}"),
        ("PUT", "/v1/pins/{holder}/{key}"),
        ("DELETE", "/v1/pins/{holder}/{key}"),
        ("POST", "/v1/fetch"),
        ("GET", "/v1/fetches"),
        ("GET", "/v1/fetches/{fetch}"),
        ("GET", "/v1/fetches/{fetch}/events"),
        ("GET", "/v1/status"),
    }


async def test_a_replica_looks_up_reads_lists_and_pins(root: Path) -> None:
    async with doors(root) as (_, replica):
        client = replica.client
        assert (await client.get("/v1/models/m")).json()["key"] == "m"
        assert (await client.head("/v1/models/m")).status_code == 200
        assert (await client.get("/v1/content/m")).content == b"weights"
        assert len((await client.get("/v1/models")).json()["models"]) == 1
        assert (await client.put("/v1/pins/h/m")).status_code == 201
        assert (await client.get("/v1/status")).json()["pins"] == 1
        assert (await client.delete("/v1/pins/h/m")).status_code == 204


async def test_all_else_is_refused_and_the_admin_socket_named(root: Path) -> None:
    async with doors(root) as (_, replica):
        for route in ELSEWHERE:
            target = route.path.replace("{key}", "m").replace("{holder}", "h")
            answer = await replica.client.request(route.method, target)
            assert answer.status_code == 403, route
            document = problem(answer)
            assert document["code"] == "forbidden"
            assert "admin socket" in document["door"]
        assert (await replica.client.get("/v1/models/m")).status_code == 200


@pytest.mark.needs("root", "curl")
async def test_a_pin_is_its_users_alone(root: Path) -> None:
    async with doors(root) as (admin, replica):
        assert [one[0] for one in await as_nobody(replica, "PUT", "/v1/pins/h/m")] == [201]
        (pin,) = (await admin.client.get("/v1/pins")).json()["pins"]
        assert (pin["holder"], pin["uid"]) == ("h", NOBODY)
        for method in ("PUT", "DELETE"):
            answer = await replica.client.request(method, "/v1/pins/h/m")
            assert answer.status_code == 403
            assert f"uid {os.geteuid()}" in problem(answer)["detail"]
            assert "admin socket" in problem(answer)["door"]
        assert [one[0] for one in await as_nobody(replica, "PUT", "/v1/pins/h/m?ttl=60")] == [200]
        assert [one[0] for one in await as_nobody(replica, "DELETE", "/v1/pins/h/m")] == [204]


@pytest.mark.needs("root", "curl")
async def test_what_the_admin_pinned_no_replica_lets_go(root: Path) -> None:
    async with doors(root) as (admin, replica):
        assert (await admin.client.put("/v1/pins/h/m")).status_code == 201
        ((status, document),) = await as_nobody(replica, "DELETE", "/v1/pins/h/m")
        assert (status, document["code"]) == (403, "forbidden")
        assert (await admin.client.get("/v1/status")).json()["pins"] == 1


@pytest.mark.needs("root", "curl")
async def test_a_storm_of_pins_by_one_user_is_bounded(root: Path) -> None:
    async with doors(root, Options(pins_per_uid=5)) as (admin, replica):
        answers = await as_nobody(replica, "PUT", "/v1/pins/h[1-12]/m")
        assert [status for status, _ in answers] == [201] * 5 + [429] * 7
        assert {document["code"] for status, document in answers if status == 429} == {"too-many"}
        assert answers[-1][1]["limit"] == 5
        assert (await replica.client.put("/v1/pins/mine/m")).status_code == 201
        assert (await admin.client.put("/v1/pins/other/m")).status_code == 201
        assert (await admin.client.get("/v1/status")).json()["pins"] == 7


async def test_the_description_says_at_which_doors_each_route_answers(root: Path) -> None:
    async with serving(root) as served:
        paths = (await served.client.get("/openapi.json")).json()["paths"]
        for route in ROUTES:
            operation = paths[route.path][route.method.lower()]
            shown = {door for door in get_args(Door) if route.by_token(door)}
            assert set(operation["x-weightd-doors"]) == route.doors | shown
            assert bool(operation["security"]) == bool(shown - route.doors)
            assert ("the replica socket" in operation["description"]) == ("replica" in route.doors)
