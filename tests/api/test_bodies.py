"""The byte path in: real threads, and a peer that is played."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.types import Message

from weightd.api.bodies import HANDOVER, QUEUED_MAX, RequestBody
from weightd.api.direct import PACE
from weightd.cache import Source
from weightd.errors import IncompleteBody, Stalled

CHUNK = 64 * 1024


class Peer:
    """Plays the server's side of ``receive``: messages that were prepared, then silence."""

    def __init__(self, *messages: Message) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self._messages.put_nowait(message)
        self.asked = 0

    def say(self, message: Message) -> None:
        self._messages.put_nowait(message)

    async def receive(self) -> Message:
        self.asked += 1
        return await self._messages.get()


GONE: Message = {"type": "http.disconnect"}


def chunks(data: bytes, size: int = CHUNK, *, whole: bool = True) -> Iterable[Message]:
    for start in range(0, len(data), size):
        more = not whole or start + size < len(data)
        yield {"type": "http.request", "body": data[start : start + size], "more_body": more}


def body_of(peer: Peer, length: int | None = None, idle_timeout: float = 30.0) -> RequestBody:
    return RequestBody(peer.receive, length=length, idle_timeout=idle_timeout)


def read_all(source: Source, size: int) -> bytes:
    buffer = bytearray(size)
    read = bytearray()
    while count := source.readinto(memoryview(buffer)):
        read += buffer[:count]
    return bytes(read)


async def in_thread(function: Callable[[], bytes]) -> bytes:
    return await asyncio.to_thread(function)


@pytest.mark.parametrize("buffer", [1, 512, HANDOVER - 1, HANDOVER, QUEUED_MAX * 2])
@pytest.mark.parametrize("size", [0, 1, CHUNK, HANDOVER, HANDOVER + 1, QUEUED_MAX * 2 + 17])
async def test_every_byte_arrives_in_order(buffer: int, size: int) -> None:
    if buffer == 1 and size > CHUNK:
        size = CHUNK + 1
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    peer = Peer(*(chunks(data) if data else [{"type": "http.request", "body": b""}]))
    async with body_of(peer, size) as source:
        assert await in_thread(lambda: read_all(source, buffer)) == data


async def test_nothing_is_asked_of_the_peer_before_the_body_is_entered() -> None:
    peer = Peer(*chunks(b"x"))
    body = body_of(peer)
    assert (peer.asked, body.begun) == (0, False)
    async with body as source:
        await in_thread(lambda: read_all(source, 10))
    assert (peer.asked, body.begun) == (1, True)


async def test_a_slow_reader_stops_the_peer() -> None:
    peer = Peer(*chunks(b"x" * (4 * QUEUED_MAX)))
    async with body_of(peer) as source:
        while peer.asked < QUEUED_MAX // CHUNK:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert peer.asked == QUEUED_MAX // CHUNK
        assert len(await in_thread(lambda: read_all(source, HANDOVER))) == 4 * QUEUED_MAX


async def test_a_peer_that_goes_is_told_to_the_reader() -> None:
    peer = Peer(*chunks(b"x" * 100, whole=False), GONE)
    async with body_of(peer, 200) as source:
        with pytest.raises(IncompleteBody) as raised:
            await in_thread(lambda: read_all(source, HANDOVER))
    assert (raised.value.received, raised.value.declared) == (100, 200)


async def test_a_peer_that_says_nothing_has_stalled() -> None:
    peer = Peer(*chunks(b"x" * 100, whole=False))
    async with body_of(peer, idle_timeout=0.01) as source:
        with pytest.raises(Stalled):
            await in_thread(lambda: read_all(source, HANDOVER))


async def test_the_time_that_the_disk_takes_is_not_the_peers() -> None:
    peer = Peer(*chunks(b"x" * (3 * QUEUED_MAX)))
    async with body_of(peer, idle_timeout=0.05) as source:
        await asyncio.sleep(0.2)  # the disk: longer than a peer may be silent
        assert len(await in_thread(lambda: read_all(source, HANDOVER))) == 3 * QUEUED_MAX


async def test_leaving_unblocks_a_waiting_reader() -> None:
    waiting = threading.Event()

    def read(source: Source) -> bytes:
        waiting.set()
        return read_all(source, HANDOVER)

    with ThreadPoolExecutor(1) as threads:
        async with body_of(Peer()) as source:
            reading = threads.submit(read, source)
            await asyncio.to_thread(waiting.wait)
        with pytest.raises(IncompleteBody):
            await asyncio.wrap_future(reading)


async def test_cancellation_unblocks_a_waiting_reader() -> None:
    readers: list[asyncio.Future[bytes]] = []

    async def put() -> None:
        async with body_of(Peer(*chunks(b"x" * 100, whole=False))) as source:
            readers.append(asyncio.ensure_future(in_thread(lambda: read_all(source, HANDOVER))))
            await asyncio.shield(readers[0])

    putting = asyncio.create_task(put())
    while not readers:
        await asyncio.sleep(0)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    with pytest.raises(IncompleteBody):
        await readers[0]


async def test_a_reader_that_stops_early_leaves_nothing_behind() -> None:
    peer = Peer(*chunks(b"x" * (4 * QUEUED_MAX)))
    async with body_of(peer) as source:
        await in_thread(lambda: bytes(source.readinto(memoryview(bytearray(10)))))


async def test_after_leaving_the_reader_gets_nothing_more() -> None:
    async with body_of(Peer(*chunks(b"x" * 100))) as source:
        await in_thread(lambda: bytes(source.readinto(memoryview(bytearray(10)))))
    with pytest.raises(IncompleteBody):
        await in_thread(lambda: read_all(source, 10))


async def test_a_body_has_its_time_for_each_step_and_not_for_the_whole() -> None:
    class Slow(Peer):
        async def receive(self) -> Message:
            await asyncio.sleep(0.1)  # the slowness that is tested
            return await super().receive()

    data = bytes(PACE) * 12
    async with body_of(Slow(*chunks(data, PACE)), len(data), idle_timeout=1.0) as source:
        assert len(await in_thread(lambda: read_all(source, HANDOVER))) == len(data)
    crumbs = Slow(*chunks(bytes(1000), 10))
    async with body_of(crumbs, 1000, idle_timeout=1.0) as source:
        with pytest.raises(Stalled):
            await in_thread(lambda: read_all(source, HANDOVER))
