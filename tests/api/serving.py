"""A real cache behind a real server on a unix socket, for tests of the edge."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from weightd.api import Desk, Door, Limits, create_app, protocol_of
from weightd.api.app import ROUTES
from weightd.api.problems import kind_of
from weightd.cache import Options, WeightCache
from weightd.store import Store

BUDGET = 4_000_000


@dataclass
class Served:
    """What a test talks to: by ``client``, by a bare connection, or past the edge."""

    cache: WeightCache
    desk: Desk
    socket: Path
    client: httpx.AsyncClient

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.socket))

    async def exchange(self, sent: bytes) -> Answer:
        """Send bytes as they are, and read one answer up to the connection's end."""
        reader, writer = await self.connect()
        try:
            writer.write(sent)
            return await read_answer(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    async def put(self, key: str, size: int, **query: str | int) -> httpx.Response:
        return await self.client.put(f"/v1/models/{key}", content=content(key, size), params=query)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one whole answer off a bare connection, passing 100 Continue by."""
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100 "):
        head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")[:-2]
    headers = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(int(first.split()[1]), headers, body)


def content(key: str, size: int) -> bytes:
    """Bytes that differ from key to key."""
    return (key.encode() * (size // len(key) + 1))[:size]


def problem(response: httpx.Response | Answer) -> Any:
    """The problem document of an answer, whose members agree with the answer itself."""
    status = response.status if isinstance(response, Answer) else response.status_code
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["type"] == f"urn:weightd:problem:{document['code']}"
    assert document["title"]
    assert document["detail"]
    return document


async def declared(response: httpx.Response) -> None:
    """See that a refusal is one that the description has for its route."""
    if response.headers.get("content-type") != "application/problem+json":
        return
    method = response.request.method
    path = response.request.url.raw_path.decode().partition("?")[0]
    for route in ROUTES:
        head = method == "HEAD" and route.method == "GET" and not route.own_head
        if (route.method == method or head) and route.pattern.fullmatch(path):
            await response.aread()
            refusals = {kind_of(error).status: set[str]() for error in route.all_errors}
            for error in route.all_errors:
                refusals[kind_of(error).status].add(error.code)
            assert response.status_code in refusals, (route.method, route.path, response.text)
            if method != "HEAD":
                assert response.json()["code"] in refusals[response.status_code], response.text
            return


@asynccontextmanager
async def serving(
    root: Path,
    *,
    door: Door = "admin",
    capacity: int = BUDGET,
    limits: Limits | None = None,
    options: Options | None = None,
) -> AsyncIterator[Served]:
    """Serve a cache at ``root`` until the context is left."""
    store = await asyncio.to_thread(Store.open, root)
    try:
        cache = WeightCache(store, capacity=capacity, options=options)
        await cache.start()
        try:
            async with answering(cache, Desk(cache, limits), door) as served:
                yield served
        finally:
            await cache.close()
    finally:
        await asyncio.to_thread(store.close)


class _Server(uvicorn.Server):
    """A server that says when it has begun to answer."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answering = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answering.set()


@asynccontextmanager
async def answering(
    cache: WeightCache, desk: Desk, door: Door, *, tcp: bool = False
) -> AsyncIterator[Served]:
    """Answer at one door, on a unix socket or on a free port of the loopback."""
    app = create_app(desk, door)
    protocol: Any = protocol_of(desk, door)
    config = uvicorn.Config(
        app, http=protocol, lifespan="off", ws="none", log_config=None, access_log=False
    )
    # The socket has a short path, whatever the test's directory is called.
    with tempfile.TemporaryDirectory(prefix="weightd-") as directory:
        path = Path(directory) / "socket"
        path.parent.chmod(0o711)
        listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0) if tcp else str(path))
        if door == "replica":
            path.chmod(0o666)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}" if tcp else "http://weightd"
        server = _Server(config)
        running = asyncio.create_task(server._serve([listener]))
        await server.answering.wait()
        transport = httpx.AsyncHTTPTransport(uds=None if tcp else str(path))
        try:
            async with httpx.AsyncClient(
                transport=transport,
                base_url=url,
                timeout=30,
                event_hooks={"response": [declared]},
            ) as client:
                yield Served(cache, desk, path, client)
        finally:
            server.should_exit = True
            await running
