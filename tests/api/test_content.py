"""The bytes of a model's files: whole, in ranges, by condition."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import Served, content, problem, serving
from tests.api.test_models import TAR, tar
from weightd.api import Limits

DATA = content("data", 2_500_001)
TAG = f'"{hashlib.sha256(DATA).hexdigest()}"'
OTHER = f'"{"0" * 64}"'


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One daemon for all that only read; reading content is no lookup."""
    async with serving(tmp_path_factory.mktemp("content") / "cache") as served:
        assert (await served.client.put("/v1/models/m", content=DATA)).status_code == 201
        yield served
        status = (await served.client.get("/v1/status")).json()
        assert status["hits"] + status["misses"] == 0


@pytest.fixture
async def own(root: Path) -> AsyncIterator[Served]:
    """A daemon of the test's own, whose readers may take nothing for a moment only."""
    async with serving(root, limits=Limits(idle_timeout=0.2)) as served:
        assert (await served.client.put("/v1/models/m", content=DATA)).status_code == 201
        yield served


async def test_the_whole_file(served: Served) -> None:
    answer = await served.client.get("/v1/content/m")
    assert answer.status_code == 200
    assert answer.content == DATA
    assert answer.headers["etag"] == TAG
    assert answer.headers["accept-ranges"] == "bytes"


async def test_head_answers_the_size_and_no_bytes(served: Served) -> None:
    answer = await served.client.head("/v1/content/m", headers={"Range": "bytes=0-1"})
    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["etag"] == TAG
    assert answer.content == b""


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=2500000-", 2_500_000, 2_500_001),
        ("bytes=1048575-2097153", 1_048_575, 2_097_154),
        ("bytes=-5", 2_499_996, 2_500_001),
        ("bytes=-99999999", 0, 2_500_001),
        ("bytes=0-99999999", 0, 2_500_001),
        ("Bytes = 1-2", 1, 3),
    ],
)
async def test_one_range(served: Served, asked: str, start: int, stop: int) -> None:
    answer = await served.client.get("/v1/content/m", headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == DATA[start:stop]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(DATA)}"


@pytest.mark.parametrize(
    "asked", ["bytes=2500001-", "bytes=9999999-99999999", "bytes=-0", "bytes=0-1,5-6"]
)
async def test_a_range_that_cannot_be_answered(served: Served, asked: str) -> None:
    answer = await served.client.get("/v1/content/m", headers={"Range": asked})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"
    assert problem(answer)["bytes"] == len(DATA)


async def test_an_unknown_unit_is_ignored(served: Served) -> None:
    answer = await served.client.get("/v1/content/m", headers={"Range": "rows=0-1"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-None-Match": TAG}, 304),
        ({"If-None-Match": f"{OTHER}, W/{TAG}"}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": OTHER}, 200),
        ({"If-None-Match": TAG, "Range": "bytes=0-1"}, 304),
        ({"If-Range": TAG, "Range": "bytes=0-1"}, 206),
        ({"If-Range": OTHER, "Range": "bytes=0-1"}, 200),
        ({"If-Range": f"W/{TAG}", "Range": "bytes=0-1"}, 200),
        ({"If-Range": "Mon, 30 Nov 2026 00:00:00 GMT", "Range": "bytes=0-1"}, 200),
        ({"If-Match": TAG}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": OTHER}, 412),
    ],
)
async def test_conditions(served: Served, headers: dict[str, str], status: int) -> None:
    answer = await served.client.get("/v1/content/m", headers=headers)
    assert answer.status_code == status
    if status == 304:
        assert answer.content == b""
        assert answer.headers["etag"] == TAG
    if status == 412:
        assert problem(answer)["sha256"] == TAG.strip('"')


async def test_which_file_must_be_said_when_there_are_several(served: Served) -> None:
    await served.client.put("/v1/models/d", content=tar({"a": b"one", "s/b": b""}), headers=TAR)
    answer = await served.client.get("/v1/content/d")
    assert problem(answer)["what"] == "file"
    assert (await served.client.get("/v1/content/d?file=a")).content == b"one"
    empty = await served.client.get("/v1/content/d?file=s/b")
    assert (empty.status_code, empty.content) == (200, b"")
    nothing = await served.client.get("/v1/content/d?file=s/b", headers={"Range": "bytes=0-"})
    assert nothing.status_code == 416
    answer = await served.client.get("/v1/content/d?file=c")
    assert answer.status_code == 404
    assert problem(answer)["code"] == "unknown-file"


async def test_an_absent_model_is_not_resident(served: Served) -> None:
    for target in ("/v1/content/x", "/v1/content/x?file=a"):
        answer = await served.client.get(target)
        assert problem(answer)["code"] == "not-resident"


async def test_a_model_goes_once_its_reader_left(root: Path) -> None:
    async with serving(root) as served:
        await served.client.put("/v1/models/m", content=DATA)
        connection = await reading(served)
        assert (await served.client.delete("/v1/models/m")).status_code == 409
        connection.close()
        await until_deleted(served)


async def test_a_reader_that_takes_nothing_is_cut(own: Served) -> None:
    connection = await reading(own)
    await until_deleted(own)
    assert await rest(connection) < len(DATA)
    connection.close()


async def rest(connection: socket.socket) -> int:
    """How many bytes still come before the connection ends, however it does."""
    loop, total = asyncio.get_running_loop(), 0
    try:
        while received := await loop.sock_recv(connection, 1_000_000):
            total += len(received)
    except ConnectionResetError:
        pass
    return total


async def reading(served: Served) -> socket.socket:
    """A connection with an answer under way that it does not read."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, str(served.socket))
    await loop.sock_sendall(connection, b"GET /v1/content/m HTTP/1.1\r\nHost: d\r\n\r\n")
    assert (await loop.sock_recv(connection, 12)) == b"HTTP/1.1 200"
    return connection


async def until_deleted(served: Served) -> None:
    async with asyncio.timeout(20):
        while (await served.client.delete("/v1/models/m")).status_code != 204:
            pass
