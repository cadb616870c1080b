"""The byte path out: real files, real sockets, and readers of every kind."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import Answer, Served, content, read_answer, serving
from tests.polling import until
from weightd.api import Limits
from weightd.api.sending import Sender
from weightd.daemon.limits import DESCRIPTORS_EACH

SIZE = 3_000_000
DATA = content("data", SIZE)
GET = b"GET /v1/content/m HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture
async def served(root: Path) -> AsyncIterator[Served]:
    """A daemon whose readers may take nothing for a moment only."""
    async with serving(root, limits=Limits(idle_timeout=0.3)) as served:
        assert (await served.client.put("/v1/models/m", content=DATA)).status_code == 201
        yield served


async def asking(served: Served, sent: bytes = GET) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, str(served.socket))
    await loop.sock_sendall(connection, sent)
    return connection


async def until_free(served: Served) -> None:
    """Until nobody reads the model any more, so that it can go."""
    async with asyncio.timeout(20):
        while (await served.client.delete("/v1/models/m")).status_code != 204:
            pass


async def test_a_slow_reader_gets_all_of_it(served: Served) -> None:
    connection = await asking(served)
    loop, received = asyncio.get_running_loop(), bytearray()
    while len(received.partition(b"\r\n\r\n")[2]) < SIZE:
        received += await loop.sock_recv(connection, 100_000)
        # Somebody else has his turn meanwhile.
        assert (await served.client.get("/healthz")).status_code == 200
    assert received.partition(b"\r\n\r\n")[2] == DATA
    connection.close()


async def test_answers_in_a_row_come_in_order(served: Served) -> None:
    reader, writer = await served.connect()
    part = GET.replace(b"Host", b"Range: bytes=5-9\r\nHost")
    writer.write(GET + part + GET + b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    answers: list[Answer] = [await read_answer(reader) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 206, 200, 200]
    assert [answer.body for answer in answers[:3]] == [DATA, DATA[5:10], DATA]
    writer.close()


@pytest.mark.parametrize("between", [b"", b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"])
async def test_what_cannot_be_parsed_behind_it_is_not_answered_in_its_middle(
    served: Served, between: bytes
) -> None:
    reader, writer = await served.connect()
    writer.write(GET + between)
    await reader.readuntil(b"200 OK")
    bad = b"PUT /v1/models/n HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n"
    writer.write(bad)
    rest = await reader.read()
    _, _, sent = rest.partition(b"\r\n\r\n")
    assert sent[:SIZE] == DATA
    assert sent[SIZE:].count(b"HTTP/1.1 ") == bool(between)
    writer.close()


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_RDWR, None])
async def test_a_reader_that_goes_is_no_fault(
    served: Served, how: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await asking(served)
    assert (await asyncio.get_running_loop().sock_recv(connection, 12)) == b"HTTP/1.1 200"
    if how is None:
        connection.close()
    else:
        connection.shutdown(how)
    await until_free(served)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    connection.close()


async def test_a_reader_that_drips_is_cut(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    connection = await asking(served)
    freed = asyncio.create_task(until_free(served))
    taken = 0
    while not freed.done():
        taken += len(await asyncio.get_running_loop().sock_recv(connection, 1))
        await asyncio.wait({freed}, timeout=0.02)
    assert taken < 20_000
    (cut,) = [one for one in caplog.records if one.message == "content was cut before its end"]
    assert "the reader took nothing" in vars(cut)["reason"]
    connection.close()


async def test_a_sending_that_is_cancelled_leaves_the_connection_closed(served: Served) -> None:
    connection = await asking(served)
    assert (await asyncio.get_running_loop().sock_recv(connection, 12)) == b"HTTP/1.1 200"
    answering = [
        task
        for task in asyncio.all_tasks()
        if "run_asgi" in getattr(task.get_coro(), "__name__", "")
    ]
    for task in answering:
        task.cancel()
    await until_free(served)
    connection.close()


def test_a_file_that_ends_early_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    descriptor = os.open(path, os.O_RDONLY)
    sender = Sender(ours, descriptor, 2, 10)
    with pytest.raises(EOFError):
        sender.turn()
    assert sender.left == 7
    assert peer.recv(100) == b"345"
    os.close(descriptor)
    ours.close()
    peer.close()


def test_a_thread_leaves_a_reader_that_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    descriptor = os.open(path, os.O_RDONLY)
    sender = Sender(ours, descriptor, 0, SIZE)
    until(lambda: not sender.turn())
    assert 0 < sender.left < SIZE
    assert sender.untaken() > 0
    os.close(descriptor)
    ours.close()
    peer.close()


async def test_readers_take_no_more_descriptors_than_they_are_counted_for(root: Path) -> None:
    size, count = 8 * SIZE, 8
    async with serving(root, capacity=4 * size) as served:
        answer = await served.client.put("/v1/models/m", content=content("m", size))
        assert answer.status_code == 201
        before = len(os.listdir("/proc/self/fd"))
        readers = [await asking(served) for _ in range(count)]
        for reader in readers:
            # Its head is there, then part of its body: it is being sent to.
            for _ in range(2):
                assert await asyncio.get_running_loop().sock_recv(reader, 100_000)
        taken = len(os.listdir("/proc/self/fd")) - before - count
        for reader in readers:
            reader.close()
    assert 2 * count < taken <= DESCRIPTORS_EACH * count
