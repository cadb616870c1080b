"""Many clients that pin, look up and unpin without an end, and take no refusal.

Half of them keep their connection for as long as they are let, half make one for each call.
What each believes of its pin is compared with every answer: a pin that was lost shows as one
that is taken anew, or as one that is not there to be taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.polling import eventually

_ANSWER_WITHIN: Final = 60.0

MODEL: Final = "crowded"


class Peer:
    """One client's connection, which it makes anew when it was told that it closes."""

    def __init__(self, path: Path, keeps: bool) -> None:
        self._path = path
        self._keeps = keeps
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, target: str) -> int:
        """The status of the answer.  Raises whatever the connection does."""
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(str(self._path))
        reader, writer = self._streams
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: w\r\nContent-Length: 0\r\n\r\n".encode())
        async with asyncio.timeout(_ANSWER_WITHIN):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            await reader.readexactly(int(fields.get("content-length", 0)))
        if not self._keeps or fields.get("connection") == "close":
            await self.close()
        return int(head.split()[1])

    async def close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            await writer.wait_closed()


class Crowd:
    """``calls`` is how many were answered, ``refused`` what went wrong, ``pinned`` who pins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._enough = asyncio.Event()
        self.calls = 0
        self.refused: list[str] = []
        self.pinned: set[str] = set()

    @asynccontextmanager
    async def about(self, many: int) -> AsyncIterator[None]:
        """So many clients while the context is entered; leaving waits for their last answers."""
        async with asyncio.TaskGroup() as clients:
            for number in range(many):
                clients.create_task(self._client(number))
            try:
                yield
            finally:
                self._enough.set()

    async def answered(self, more: int) -> None:
        """Wait until so many more calls were answered."""
        wanted = self.calls + more
        await eventually(lambda: self.calls >= wanted or self.refused)

    async def _client(self, number: int) -> None:
        holder = f"client-{number}"
        pin = f"/v1/pins/{holder}/{MODEL}"
        peer = Peer(self._path, keeps=number % 2 == 0)
        # They are not all at the same point of their round.
        await self._call(peer, "PUT", pin, 201)
        self.pinned.add(holder)
        rounds = number % 3
        while not self._enough.is_set() and not self.refused:
            await self._call(peer, "PUT", pin, 200)
            await self._call(peer, "GET", f"/v1/models/{MODEL}", 200)
            rounds += 1
            if rounds % 3 == 0:
                await self._call(peer, "DELETE", pin, 204)
                self.pinned.discard(holder)
                await self._call(peer, "PUT", pin, 201)
                self.pinned.add(holder)
        await peer.close()

    async def _call(self, peer: Peer, method: str, target: str, expected: int) -> None:
        try:
            status = await peer.call(method, target)
        except (OSError, EOFError, asyncio.LimitOverrunError, TimeoutError) as error:
            self.refused.append(f"{method} {target}: {error!r}")
            return
        self.calls += 1
        if status != expected:
            self.refused.append(f"{method} {target}: {status}, and not {expected}")
