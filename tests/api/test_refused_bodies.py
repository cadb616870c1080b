"""A body that is refused, cut or stalled: the sender sees why, and nothing stays reserved."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.api.serving import BUDGET, Served, problem, read_answer, serving
from weightd.api import DrainLimits, Limits

TOO_LARGE = BUDGET + 1
EXPECT = "Expect: 100-continue\r\n"


def put(length: int, more: str = "", key: str = "m", query: str = "") -> bytes:
    return (
        f"PUT /v1/models/{key}{query} HTTP/1.1\r\nHost: d\r\nContent-Length: {length}\r\n{more}\r\n"
    ).encode()


async def settled(served: Served) -> None:
    """Wait until no arrival is left, then see that none left anything."""
    async with asyncio.timeout(20):
        while (await served.client.get("/v1/status")).json()["arrivals"]:
            pass
    status = (await served.client.get("/v1/status")).json()
    for figure in ("reserved_bytes", "written_bytes", "waiting"):
        assert status[figure] == 0, figure
    assert not list((status_root(status) / "incoming").iterdir())


def status_root(status: dict[str, str]) -> Path:
    return Path(status["root"])


async def test_expect_is_answered_before_a_byte_is_sent(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(put(TOO_LARGE, EXPECT))
    first = await reader.readuntil(b"\r\n")
    assert first.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in (await reader.readuntil(b"\r\n\r\n")).lower()
    writer.close()
    await settled(served)


async def test_expect_is_continued_once_there_is_room(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(put(5, EXPECT))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hello")
    assert (await read_answer(reader)).status == 201
    writer.close()


async def test_a_sender_that_does_not_look_still_sees_the_refusal(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(put(TOO_LARGE))
    for _ in range(TOO_LARGE // 1000 + 1):
        writer.write(b"x" * 1000)
    await writer.drain()
    answer = await read_answer(reader)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert problem(answer)["code"] == "too-large"
    assert await reader.read() == b""
    writer.close()


async def test_the_drain_is_bounded(root: Path) -> None:
    limits = Limits(drain=DrainLimits(bytes=100_000, seconds=10, idle=0.05))
    async with serving(root, limits=limits) as served:
        reader, writer = await served.connect()
        writer.write(put(TOO_LARGE) + b"x" * 1000)
        answer = await read_answer(reader)
        assert answer.status == 413
        assert await reader.read() == b"", "closed, although the rest was never sent"
        writer.close()


async def test_an_unread_body_is_never_taken_for_a_request(served: Served) -> None:
    smuggled = b"DELETE /v1/models/kept HTTP/1.1\r\nHost: d\r\n\r\n"
    await served.put("kept", 10)
    reader, writer = await served.connect()
    writer.write(put(len(smuggled), key="a//b") + smuggled)
    assert (await read_answer(reader)).status == 400
    assert await reader.read() == b""
    writer.close()
    assert (await served.client.head("/v1/models/kept")).status_code == 200


async def test_a_body_that_nobody_asked_for_is_ignored(served: Served) -> None:
    await served.put("m", 10)
    for _ in range(2):
        answer = await served.client.request("GET", "/v1/models/m", content=b"x" * 300_000)
        assert answer.status_code == 200
        assert answer.json()["key"] == "m"


async def test_a_body_shorter_than_declared_leaves_nothing(served: Served) -> None:
    await served.put("m", 1000)
    before = (await served.client.get("/v1/models/m")).json()["digest"]
    _, writer = await served.connect()
    writer.write(put(1_000_000) + b"x" * 500_000)
    await writer.drain()
    writer.close()
    await settled(served)
    assert (await served.client.get("/v1/models/m")).json()["digest"] == before


async def test_a_body_broken_in_its_chunks_is_refused(served: Served) -> None:
    answer = await served.exchange(
        b"PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\nzz\r\n"
    )
    assert answer.status == 400
    assert problem(answer)["what"] == "Transfer-Encoding"
    await settled(served)
    assert (await served.client.head("/v1/models/m")).status_code == 404


async def test_a_stalled_body_is_given_up(root: Path) -> None:
    async with serving(root, limits=Limits(idle_timeout=0.05)) as served:
        reader, writer = await served.connect()
        writer.write(put(1_000_000) + b"x" * 1000)
        answer = await read_answer(reader)
        assert answer.status == 408
        assert problem(answer)["retryable"] is True
        await settled(served)
        writer.close()


async def test_too_many_puts_are_refused(root: Path) -> None:
    async with serving(root, limits=Limits(puts=1)) as served:
        reader, writer = await served.connect()
        writer.write(put(1000, EXPECT))
        await reader.readuntil(b"\r\n\r\n")
        answer = await served.put("n", 10)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert problem(answer)["limit"] == 1
        writer.write(b"x" * 1000)
        assert (await read_answer(reader)).status == 201
        assert (await served.put("n", 10)).status_code == 201
        writer.close()


async def test_a_wait_ends_when_room_comes(served: Served) -> None:
    await served.put("old", BUDGET * 3 // 4)
    await served.client.put("/v1/pins/h/old")
    reader, writer = await served.connect()
    writer.write(put(BUDGET // 2, query="?wait=30"))
    writer.write(b"x" * (BUDGET // 2))
    await waiting(served, 1)
    await served.client.delete("/v1/pins/h/old")
    assert (await read_answer(reader)).status == 201
    writer.close()


@pytest.mark.parametrize("expect", [EXPECT, ""])
async def test_nothing_is_evicted_for_a_peer_that_stopped_waiting(
    served: Served, expect: str
) -> None:
    await served.put("old", BUDGET * 3 // 4)
    await served.client.put("/v1/pins/h/old")
    _, writer = await served.connect()
    writer.write(put(BUDGET // 2, expect, query="?wait=30"))
    await waiting(served, 1)
    writer.close()
    await waiting(served, 0)
    await served.client.delete("/v1/pins/h/old")
    await settled(served)
    assert (await served.client.head("/v1/models/old")).status_code == 200


async def waiting(served: Served, count: int) -> None:
    async with asyncio.timeout(20):
        while (await served.client.get("/v1/status")).json()["waiting"] != count:
            pass


async def test_a_put_is_no_upgrade(served: Served) -> None:
    answer = await served.exchange(put(5, "Connection: Upgrade\r\nUpgrade: h2c\r\n") + b"hello")
    assert answer.status == 400
    await settled(served)
