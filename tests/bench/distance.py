"""A relay that puts a distance between a client and a server: ``distance PORT SERVER MS BYTES``.

What comes from the server reaches the client MS milliseconds later, and of one
connection no more than BYTES are under way at a time: as over a line whose
round trip takes so long, with windows of that size.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import suppress
from typing import Final

_CHUNK: Final = 256 << 10


class Line:
    """One direction of one connection."""

    def __init__(self, seconds: float, window: int) -> None:
        self._seconds = seconds
        self._window = window
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._changed = asyncio.Condition()

    async def carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Carry what ``source`` sends, and that it ended."""
        await asyncio.gather(self._take(source), self._give(target))

    async def _take(self, source: asyncio.StreamReader) -> None:
        clock = asyncio.get_running_loop().time
        data = b"."
        while data:
            async with self._changed:
                await self._changed.wait_for(lambda: self._size < self._window)
            try:
                data = await source.read(min(_CHUNK, self._window - self._size))
            except ConnectionError:
                data = b""
            async with self._changed:
                self._under_way.append((clock() + self._seconds, data))
                self._size += len(data)
                self._changed.notify_all()

    async def _give(self, target: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._under_way))
                due, data = self._under_way.popleft()
            await asyncio.sleep(due - clock())
            async with self._changed:
                self._size -= len(data)
                self._changed.notify_all()
            if not data:
                target.close()
                return
            if not target.is_closing():
                target.write(data)
                with suppress(ConnectionError):
                    await target.drain()


async def relay(port: int, server: int, seconds: float, window: int) -> None:
    """Listen on loopback until this is cancelled."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server, limit=_CHUNK)
        await asyncio.gather(
            Line(0.0, window).carry(reader, back), Line(seconds, window).carry(there, writer)
        )

    listener = await asyncio.start_server(carry, "127.0.0.1", port, limit=_CHUNK)
    async with listener:
        await listener.serve_forever()


def main() -> None:
    port, server, milliseconds, window = (int(argument) for argument in sys.argv[1:])
    asyncio.run(relay(port, server, milliseconds / 1000, window))


if __name__ == "__main__":
    main()
