"""The doors on the network: open to who shows the token, and to nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.api.serving import Served, answering, problem, serving
from weightd.api import Desk, Door, Token
from weightd.api.app import ROUTES
from weightd.api.problems import AS_PASSWORD

TOKEN = "correct-horse-battery-staple"
PROBES = {"/metrics", "/healthz", "/readyz"}
SHOWN = ("/v1/status", "/v1/models", "/")
AS_SHOWN = {"Authorization": f"Bearer {TOKEN}"}

WRONG: dict[str, list[tuple[str, str]]] = {
    "none": [],
    "empty": [("Authorization", "")],
    "no scheme": [("Authorization", TOKEN)],
    "another scheme": [("Authorization", f"Basic {TOKEN}")],
    "another token": [("Authorization", f"Bearer {TOKEN[::-1]}")],
    "its beginning": [("Authorization", f"Bearer {TOKEN[:-1]}")],
    "more than it": [("Authorization", f"Bearer {TOKEN}x")],
    "twice": [("Authorization", f"Bearer {TOKEN}")] * 2,
    "beside another": [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")],
    "in another case": [("Authorization", f"Bearer {TOKEN.upper()}")],
    "as a proxy's": [("Proxy-Authorization", f"Bearer {TOKEN}")],
}


@asynccontextmanager
async def at(root: Path, door: Door, token: Token) -> AsyncIterator[tuple[Served, Served]]:
    """The same cache at the admin socket and, by TCP, at a door on the network."""
    async with serving(root) as admin:
        desk = Desk(admin.cache, token=token)
        async with answering(admin.cache, desk, door, tcp=True) as network:
            yield admin, network


def target(path: str) -> str:
    return path.replace("{key}", "m").replace("{holder}", "h")


@pytest.mark.parametrize("wrong", WRONG)
async def test_who_does_not_show_the_token_is_told_and_changes_nothing(
    root: Path, wrong: str
) -> None:
    async with at(root, "network", Token(TOKEN)) as (admin, network):
        assert (await admin.put("m", 300_000)).status_code == 201
        before = (await admin.client.get("/v1/status")).json()
        for route in ROUTES:
            answer = await network.client.request(
                route.method, target(route.path), headers=WRONG[wrong], content=b"x" * 1000
            )
            if route.path in PROBES:
                assert answer.status_code == 200
                continue
            if route.on_node:
                # No token would open it.
                assert answer.status_code == 403
                continue
            assert answer.status_code == 401, route
            challenges = ['Bearer realm="weightd"', *([AS_PASSWORD] if route.for_browsers else [])]
            assert answer.headers.get_list("www-authenticate") == challenges
            assert TOKEN not in answer.text
            if route.method != "HEAD":
                document = problem(answer)
                assert (document["code"], document["retryable"]) == ("unauthorized", False)
                assert "admin socket" in document["door"]
        after = (await admin.client.get("/v1/status")).json()
        assert [after[name] for name in ("models", "pins", "used_bytes")] == [
            before[name] for name in ("models", "pins", "used_bytes")
        ]


async def test_with_the_token_the_whole_api_answers(root: Path) -> None:
    async with at(root, "network", Token(TOKEN)) as (admin, network):
        network.client.headers.update(AS_SHOWN)
        assert (await network.put("m", 300_000)).status_code == 201
        assert (await network.client.get("/v1/models/m")).json()["bytes"] == 300_000
        assert (await network.client.put("/v1/pins/h/m")).status_code == 201
        assert problem(await network.client.delete("/v1/models/m"))["code"] == "pinned"
        assert (await network.client.delete("/v1/pins/h/m")).status_code == 204
        assert (await network.client.delete("/v1/models/m")).status_code == 204
        assert (await network.client.get("/openapi.json")).status_code == 200
        assert (await admin.client.get("/v1/models")).json()["models"] == []


async def test_only_who_is_on_this_node_brings_files_of_it(root: Path) -> None:
    async with at(root, "network", Token(TOKEN)) as (_, network):
        file = {"path": "w", "bytes": 1}
        for path, files in (
            ("/v1/uploads", [file]),
            ("/v1/adopt", [file | {"place": "/etc/passwd"}]),
        ):
            asked = {"key": "m", "files": files}
            answer = await network.client.post(path, json=asked, headers=AS_SHOWN)
            document = problem(answer)
            assert document["code"] == "forbidden"
            assert "admin socket" in document["door"]


async def test_another_token_counts_from_the_next_request(root: Path) -> None:
    token = Token(TOKEN)
    async with at(root, "network", token) as (_, network):
        assert (await network.client.get("/v1/models", headers=AS_SHOWN)).status_code == 200
        token.replace("another-token-altogether")
        assert (await network.client.get("/v1/models", headers=AS_SHOWN)).status_code == 401
        token.replace(None)
        assert (await network.client.get("/v1/models", headers=AS_SHOWN)).status_code == 401


async def test_a_listener_on_the_network_shows_what_is_here_to_who_has_the_token(
    root: Path,
) -> None:
    token = Token()
    async with at(root, "public", token) as (_, network):
        for path in SHOWN:
            refused = problem(await network.client.get(path, headers=AS_SHOWN))
            assert refused["code"] == "forbidden"
            assert "token_file" in str(refused["detail"])
        token.replace(TOKEN)
        for path in SHOWN:
            assert problem(await network.client.get(path))["code"] == "unauthorized"
            assert (await network.client.get(path, headers=AS_SHOWN)).status_code == 200
        # It changes nothing, whoever asks.
        for method, path in (
            ("PUT", "/v1/models/m"),
            ("GET", "/v1/pins"),
            ("GET", "/v1/evictions"),
        ):
            answer = await network.client.request(method, path, headers=AS_SHOWN)
            assert problem(answer)["code"] == "forbidden"


async def test_who_is_not_let_in_is_told_before_his_body(root: Path) -> None:
    async with at(root, "network", Token(TOKEN)) as (_, network):
        port = network.client.base_url.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                b"PUT /v1/models/m HTTP/1.1\r\nHost: w\r\nContent-Length: 1000000000\r\n"
                b"Expect: 100-continue\r\n\r\n"
            )
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        finally:
            writer.close()
            await writer.wait_closed()


def basic(words: bytes) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(words).decode()}"}


@pytest.mark.parametrize("door", ["public", "network"])
async def test_a_browser_shows_the_token_as_a_password_to_see_the_page(
    root: Path, door: Door
) -> None:
    async with at(root, door, Token(TOKEN)) as (_, network):
        get = network.client.get
        shown = basic(f"anybody:{TOKEN}".encode())
        assert (await get("/", headers=shown)).headers["content-type"].startswith("text/html")
        as_json = {"Accept": "application/json"}
        assert (await get("/", headers=shown | as_json)).json()["status"]["models"] == 0
        # The page that is open says itself that the token is another: no browser asks for it.
        refused = await get("/", headers=as_json)
        assert refused.headers["www-authenticate"] == 'Bearer realm="weightd"'
        for wrong in (TOKEN, f"anybody:{TOKEN}x", f"{TOKEN}:", f"a:b:{TOKEN}", ":"):
            assert (await get("/", headers=basic(wrong.encode()))).status_code == 401
        assert (await get("/", headers={"Authorization": "Basic ===="})).status_code == 401
        # It opens the page, and nothing whatever a page from elsewhere has the browser ask for.
        assert (await get("/v1/status", headers=shown)).status_code == 401
