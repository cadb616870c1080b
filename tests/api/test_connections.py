"""Limits of connections, and peers that send or take too slowly: others are unharmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.api.serving import BUDGET, Served, answering, problem, read_answer, serving
from weightd.api import Limits, protocol
from weightd.cache import Options
from weightd.model import Key

READY = b"GET /readyz HTTP/1.1\r\nHost: d\r\n\r\n"
STATUS = b"GET /v1/status HTTP/1.1\r\nHost: d\r\n\r\n"
Peers = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


async def answered(served: Served, count: int) -> Peers:
    """So many connections that were answered and are kept."""
    peers = [await served.connect() for _ in range(count)]
    for reader, writer in peers:
        writer.write(READY)
        assert (await read_answer(reader)).status == 200
    return peers


async def test_one_connection_too_many_is_told_so_and_closed(root: Path) -> None:
    async with serving(root, limits=Limits(connections=4)) as served:
        peers = await answered(served, 4)
        for _ in range(200):
            reader, writer = await served.connect()
            answer = await read_answer(reader)
            assert answer.status == 429
            assert (problem(answer)["code"], problem(answer)["limit"]) == ("too-many", 4)
            assert "retry-after" in answer.headers
            assert await reader.read() == b""
            writer.close()
        for reader, writer in peers:
            writer.write(READY)
            assert (await read_answer(reader)).status == 200
            writer.close()
        async with asyncio.timeout(20):
            while (await served.exchange(READY)).status != 200:
                pass
        metrics = (await served.client.get("/metrics")).text
        assert 'weightd_problems_total{code="too-many"} 20' in metrics, "two hundred and a few"


async def test_others_leave_places_to_the_admin_socket(root: Path) -> None:
    async with (
        serving(root, limits=Limits(connections=8)) as admin,
        answering(admin.cache, admin.desk, "replica") as replica,
    ):
        reader, writer = await replica.connect()
        writer.write(STATUS)
        assert (await read_answer(reader)).status == 200
        quiet = [await replica.connect() for _ in range(5)]
        assert (await replica.exchange(READY)).status == 429
        assert (await admin.exchange(READY)).status == 200
        for _, one in [(reader, writer), *quiet]:
            one.close()


async def test_the_network_leaves_places_to_the_sockets(root: Path) -> None:
    async with (
        serving(root, limits=Limits(connections=8)) as admin,
        answering(admin.cache, admin.desk, "replica") as replica,
        answering(admin.cache, admin.desk, "network") as network,
    ):
        reader, writer = await network.connect()
        writer.write(READY)
        assert (await read_answer(reader)).status == 200
        quiet = [await network.connect() for _ in range(3)]
        assert (await network.exchange(READY)).status == 429
        assert (await replica.exchange(STATUS)).status == 200
        assert (await admin.exchange(READY)).status == 200
        for _, one in [(reader, writer), *quiet]:
            one.close()


async def only_the_client_is_left(served: Served) -> None:
    """Wait until the connection that does not read is gone; the client has one as well."""
    async with asyncio.timeout(30):
        while len(served.desk.connections) > 1:
            assert (await served.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_who_does_not_take_a_large_answer_is_cut(root: Path, connection: str) -> None:
    async with serving(root, limits=Limits(idle_timeout=0.4)) as served:
        await served.put("m", 10)
        holders = [f"{n:05}" + "h" * 100 for n in range(2000)]
        await asyncio.gather(*(served.cache.pin(holder, Key("m")) for holder in holders))
        _, writer = await served.connect()
        writer.write(
            f"GET /v1/pins HTTP/1.1\r\nHost: d\r\nConnection: {connection}\r\n\r\n".encode()
        )
        await writer.drain()
        await only_the_client_is_left(served)
        writer.close()


async def test_who_asks_on_and_on_and_reads_nothing_is_cut(root: Path) -> None:
    async with serving(root, limits=Limits(idle_timeout=0.4)) as served:
        _, writer = await served.connect()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: d\r\n\r\n" * 200)
        await served.client.get("/readyz")
        await only_the_client_is_left(served)
        writer.close()


async def trickled(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a byte now and then, until the other end has had enough."""
    try:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.01)  # the slowness that is tested
    except ConnectionError:
        pass


async def test_a_head_byte_by_byte_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    reader, writer = await served.connect()
    head = b"GET /readyz HTTP/1.1\r\nHost: d\r\nX-Long: " + b"x" * 500
    sending = asyncio.create_task(trickled(writer, head))
    answer = await read_answer(reader)
    assert (answer.status, problem(answer)["code"]) == (408, "stalled")
    assert (await served.client.get("/readyz")).status_code == 200
    sending.cancel()
    writer.close()


@pytest.mark.parametrize(
    "head",
    [
        "PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nContent-Length: 100000\r\n\r\n",
        "POST /v1/admission HTTP/1.1\r\nHost: d\r\nContent-Length: 10000\r\n\r\n",
    ],
)
async def test_a_body_byte_by_byte_is_given_up(root: Path, head: str) -> None:
    async with serving(root, limits=Limits(idle_timeout=0.2)) as served:
        reader, writer = await served.connect()
        writer.write(head.encode())
        sending = asyncio.create_task(trickled(writer, b" " * 5000))
        answer = await read_answer(reader)
        assert (answer.status, problem(answer)["code"]) == (408, "stalled")
        assert (await served.client.get("/v1/status")).json()["reserved_bytes"] == 0
        sending.cancel()
        writer.close()


async def test_a_head_beyond_bounds_is_refused(served: Served) -> None:
    answer = await served.exchange(READY[:-2] + b"X-Long: " + b"x" * protocol.HEAD_BYTES_MAX)
    assert (answer.status, problem(answer)["what"]) == (400, "headers")
    assert (await served.client.get("/readyz")).status_code == 200


async def test_those_who_wait_for_room_take_no_place_of_a_put(root: Path) -> None:
    options = Options(waiting=2)
    async with serving(root, limits=Limits(puts=1), options=options) as served:
        await served.put("kept", BUDGET * 3 // 4)
        await served.client.put("/v1/pins/h/kept")
        waiters = []
        for number in (1, 2):
            put = served.put(f"large{number}", BUDGET // 2, wait=60)
            waiters.append(asyncio.create_task(put))
            async with asyncio.timeout(20):
                while served.cache.waiting < number:
                    await served.client.get("/readyz")
        assert (await served.put("small", 10)).status_code == 201
        refused = await served.put("large", BUDGET // 2, wait=60)
        assert (refused.status_code, problem(refused)["limit"]) == (429, 2)
        await served.client.delete("/v1/pins/h/kept")
        assert [(await one).status_code for one in waiters] == [201, 201]
