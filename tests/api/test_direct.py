"""The byte paths past the loop: real sockets, real threads, and whole exchanges."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.serving import BUDGET, Served, content, problem, read_answer, serving
from tests.polling import until, until_nothing
from weightd.api import Limits
from weightd.api.direct import Patience, SocketSource
from weightd.errors import IncompleteBody, Stalled

KEY = "org/model@main"
SIZE = 1_000_000
NEXT = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


class Line:
    """A pair of sockets, and a source at one end of it."""

    def __init__(self, left: int, head: bytes = b"", idle_timeout: float = 30.0) -> None:
        self.peer, ours = socket.socketpair()
        ours.setblocking(False)
        self.ours = ours
        duplicate = socket.socket(fileno=os.dup(ours.fileno()))
        length = len(head) + left
        self.source = SocketSource(duplicate, head, left, Patience(idle_timeout, length))

    def close(self) -> None:
        self.peer.close()
        self.ours.close()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def read_all(source: SocketSource, size: int) -> bytes:
    buffer = bytearray(size)
    read = bytearray()
    while count := source.readinto(memoryview(buffer)):
        read += buffer[:count]
    return bytes(read)


@given(
    head=st.binary(max_size=40),
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    behind=st.binary(max_size=40),
    size=st.integers(1, 64),
)
def test_a_body_is_read_to_its_end_and_no_further(
    head: bytes, pieces: list[bytes], behind: bytes, size: int
) -> None:
    body = b"".join(pieces)
    line = Line(len(body), head)
    try:
        for piece in pieces:
            line.peer.sendall(piece)
        line.peer.sendall(behind)
        line.peer.shutdown(socket.SHUT_WR)
        assert read_all(line.source, size) == head + body
        assert line.source.close(IncompleteBody(0, None)) == 0
        assert line.ours.recv(100) == behind
    finally:
        line.close()


def test_what_is_left_stays_in_the_socket() -> None:
    line = Line(10)
    try:
        line.peer.sendall(b"0123456789next")
        buffer = memoryview(bytearray(4))
        assert line.source.readinto(buffer) == 4
        refusal = IncompleteBody(4, 10)
        assert line.source.close(refusal) == 6
        with pytest.raises(IncompleteBody) as raised:
            line.source.readinto(buffer)
        assert raised.value is refusal
        assert line.ours.recv(100) == b"456789next"
    finally:
        line.close()


def test_a_reader_that_waits_is_let_go_with_all_it_held(thread: ThreadPoolExecutor) -> None:
    before = descriptors()
    line = Line(10)
    refusal = IncompleteBody(0, 10)
    reading = thread.submit(read_all, line.source, 16)
    until(lambda: line.source._waiting)
    assert line.source.close(refusal) == 10
    assert reading.exception(10) is refusal
    line.close()
    assert descriptors() == before


def test_nothing_stays_open_when_nobody_read() -> None:
    before = descriptors()
    line = Line(10)
    line.source.close(IncompleteBody(0, 10))
    line.source.close(IncompleteBody(0, 10))
    line.close()
    assert descriptors() == before


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_goes_leaves_the_body_incomplete(
    thread: ThreadPoolExecutor, reset: bool
) -> None:
    line = Line(10)
    if reset:
        # What it has not read makes the kernel say ECONNRESET instead of an end.
        line.ours.send(b"unread")
    line.peer.sendall(b"0123")
    reading = thread.submit(read_all, line.source, 16)
    line.peer.close()
    error = reading.exception(10)
    assert isinstance(error, IncompleteBody)
    assert (error.received, error.declared) == (4, 10)
    line.source.close(error)
    line.close()


def test_what_cannot_be_had_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", none_left)
    peer, ours = socket.socketpair()
    with peer, pytest.raises(OSError, match="Too many open files"):
        SocketSource(ours, b"", 1, Patience(1.0, 1))
    assert ours.fileno() == -1


def test_a_peer_that_sends_nothing_stalls() -> None:
    line = Line(10, idle_timeout=0.02)
    with pytest.raises(Stalled):
        read_all(line.source, 16)
    line.source.close(IncompleteBody(0, 10))
    line.close()


async def exchange_all(served: Served, *sent: bytes, answers: int) -> list[int]:
    """Send pieces, each once the one before it is on its way; the statuses of the answers."""
    reader, writer = await served.connect()
    try:
        for piece in sent:
            writer.write(piece)
            await writer.drain()
        return [(await read_answer(reader)).status for _ in range(answers)]
    finally:
        writer.close()
        await writer.wait_closed()


def put(size: int, key: str = KEY, more: str = "") -> bytes:
    return (
        f"PUT /v1/models/{key} HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n{more}\r\n".encode()
    )


async def held(served: Served, key: str = KEY) -> bytes:
    return (await served.client.get(f"/v1/content/{key}")).content


async def test_requests_behind_a_body_are_answered_after_it(served: Served) -> None:
    body = content(KEY, SIZE)
    sent = [put(SIZE), body[:-10], body[-10:] + NEXT + put(SIZE) + body[:7], body[7:] + NEXT]
    assert await exchange_all(served, *sent, answers=4) == [201, 200, 200, 200]
    assert await held(served) == body


async def test_what_is_no_request_behind_a_body_closes_the_connection(served: Served) -> None:
    body = content(KEY, SIZE)
    reader, writer = await served.connect()
    writer.write(put(SIZE) + body + b"\0\0no request\r\n\r\n")
    assert (await read_answer(reader)).status == 201
    assert b"200 OK" not in await reader.read()
    writer.close()
    assert await held(served) == body


async def test_a_body_refused_half_way_is_drained_and_its_sender_told(served: Served) -> None:
    # A tar stream that is declared to be a file is refused by its first bytes.
    body = bytearray(content(KEY, SIZE))
    body[257:262] = b"ustar"
    reader, writer = await served.connect()
    writer.write(put(SIZE) + body[:100_000])
    await writer.drain()
    answer = await read_answer(reader)
    assert problem(answer)["code"] == "invalid-request"
    assert answer.headers["connection"] == "close"
    writer.write(body[100_000:] + NEXT)
    # Not one of its bytes, nor what follows them, was taken for a request.
    assert await reader.read() == b""
    writer.close()
    assert (await served.client.get(f"/v1/models/{KEY}")).status_code == 404


async def test_a_peer_that_goes_leaves_nothing(served: Served) -> None:
    _, writer = await served.connect()
    writer.write(put(SIZE) + bytes(300_000))
    await asyncio.to_thread(until, lambda: served.desk._puts)
    writer.close()
    await asyncio.to_thread(until_nothing, lambda: served.desk._puts)
    assert (await served.client.get(f"/v1/models/{KEY}")).status_code == 404


async def test_a_connection_that_is_cut_lets_its_reader_go(served: Served) -> None:
    _, writer = await served.connect()
    writer.write(put(SIZE) + bytes(300_000))
    await asyncio.to_thread(until, lambda: served.desk._puts)
    connection = next(iter(served.desk.connections._idle))
    # What a drain does when its time is over; the peer would go on sending.
    connection.cut()
    await asyncio.to_thread(until_nothing, lambda: served.desk._puts)
    writer.close()


async def test_a_body_that_stalls_is_given_up(root: Path) -> None:
    async with serving(root, limits=Limits(idle_timeout=0.2)) as served:
        reader, writer = await served.connect()
        writer.write(put(SIZE) + bytes(300_000))
        assert problem(await read_answer(reader))["code"] == "stalled"
        writer.close()


async def test_many_at_once_are_kept_apart(root: Path) -> None:
    async with serving(root, capacity=8 * BUDGET) as served:
        keys = [f"org/model-{number}@main" for number in range(8)]
        bodies = {key: content(key, SIZE) for key in keys}
        answers = await asyncio.gather(
            *(served.client.put(f"/v1/models/{key}", content=bodies[key]) for key in keys)
        )
        for key, answer in zip(keys, answers, strict=True):
            sha256 = hashlib.sha256(bodies[key]).hexdigest()
            assert answer.json()["files"][0]["sha256"] == sha256
            assert await held(served, key) == bodies[key]
