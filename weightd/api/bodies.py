"""The byte path in: from ASGI's ``receive`` to the one worker thread that writes.

The loop queues the chunks as they arrive; the thread copies them straight into
the buffer its caller reuses, so every byte is copied once on the way.  A queue
of two handovers lets the network fill one while the disk takes the other, and
beyond that the loop stops receiving, which stops the peer.  The thread is woken
once per handover, not once per chunk: a thread hop costs more than copying
64 KiB does.

``receive`` is not called before the body is entered.  The server answers
``Expect: 100-continue`` at the first call, so a refusal costs no byte.
"""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Condition
from types import TracebackType
from typing import Final

from starlette.types import Receive

from weightd.cache.records import Source
from weightd.errors import IncompleteBody, Stalled, WeightdError

HANDOVER: Final = 512 * 1024
"""How many bytes wake the thread."""

PACE: Final = 64 * 1024
"""How many bytes a peer must send within each idle timeout, for as long as its body goes on."""

QUEUED_MAX: Final = 2 * HANDOVER
"""How many bytes wait for the thread before the loop stops receiving."""


class RequestBody:
    """The body of one request as a flow that has not begun (`weightd.cache.records.Body`).

    ``length`` is what the peer declared, None when it did not.  ``idle_timeout``
    is how many seconds the peer has for each `PACE` bytes, and for what is left
    at the end, while it is its turn; time that the disk takes does not count.
    """

    def __init__(self, receive: Receive, *, length: int | None, idle_timeout: float) -> None:
        self._receive = receive
        self._length = length
        self._idle_timeout = idle_timeout
        self._received = 0
        self._due = PACE
        self._waited = 0.0
        self._pipe: _Pipe | None = None
        self._flow: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Source:
        self._pipe = _Pipe(asyncio.get_running_loop())
        self._flow = asyncio.create_task(self._run(self._pipe), name="request body")
        return self._pipe

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pipe is None or self._flow is None:
            return
        # The thread first: should this wait be cancelled, no reader is left asleep.
        self._pipe.close(self.incomplete())
        self._flow.cancel()
        await asyncio.wait({self._flow})

    async def _run(self, pipe: _Pipe) -> None:
        """Move chunks until the body ends; whatever ends this, the reader learns of it."""
        try:
            more = True
            while more:
                chunk, more = await self._next()
                if chunk:
                    await pipe.put(chunk)
            pipe.end()
        except WeightdError as error:
            pipe.fail(error)
        finally:
            pipe.fail(self.incomplete())

    async def _next(self) -> tuple[bytes, bool]:
        """The next bytes and whether more follow.  Raises Stalled or IncompleteBody."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(self._idle_timeout - self._waited):
                message = await self._receive()
        except TimeoutError:
            raise Stalled("The request's body", self._idle_timeout) from None
        self._waited += clock() - begun
        if message["type"] == "http.disconnect":
            raise self.incomplete()
        chunk: bytes = message.get("body", b"")
        self._received += len(chunk)
        if self._received >= self._due:
            self._due, self._waited = self._received + PACE, 0.0
        return chunk, message.get("more_body", False)

    @property
    def begun(self) -> bool:
        """Whether the body was asked for."""
        return self._flow is not None

    def incomplete(self) -> IncompleteBody:
        """That the body ends with what has been received so far."""
        return IncompleteBody(received=self._received, declared=self._length)


class _Pipe:
    """Chunks on their way from the loop's thread to the reader's.

    The condition's lock is held for a few list operations only, never while
    bytes are copied, so that the loop does not wait for a copy.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = Condition()
        self._chunks: deque[memoryview] = deque()
        self._queued = 0
        self._wanted = 0
        self._full = False
        self._ended = False
        self._error: WeightdError | None = None
        self._room = asyncio.Event()

    async def put(self, chunk: bytes) -> None:
        """Queue a chunk; wait while the reader is too far behind.  For the loop's thread."""
        with self._changed:
            self._chunks.append(memoryview(chunk))
            self._queued += len(chunk)
            full = self._full = self._queued >= QUEUED_MAX
            if full:
                self._room.clear()
            if 0 < self._wanted <= self._queued:
                self._changed.notify()
        if full:
            await self._room.wait()

    def end(self) -> None:
        """Say that all bytes are queued."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def fail(self, error: WeightdError) -> None:
        """Make the reader raise ``error``, unless the flow ended or failed before."""
        with self._changed:
            if self._ended or self._error is not None:
                return
            self._error = error
            self._changed.notify()

    def close(self, error: WeightdError) -> None:
        """Make the reader raise ``error`` from now on, whatever is still queued."""
        with self._changed:
            self._chunks.clear()
            self._error = self._error or error
            self._changed.notify()

    def readinto(self, buffer: memoryview) -> int:
        """Wait for a handover, or for the end, and copy what fits.  For the reader's thread."""
        with self._changed:
            self._wanted = min(HANDOVER, len(buffer))
            self._changed.wait_for(self._ready)
            self._wanted = 0
            if self._error is not None:
                raise self._error
            taken = self._take(len(buffer))
            if self._full:
                self._full = False
                self._loop.call_soon_threadsafe(self._room.set)
        return _copy(taken, buffer)

    def _ready(self) -> bool:
        return self._queued >= self._wanted or self._ended or self._error is not None

    def _take(self, most: int) -> list[memoryview]:
        """Take chunks of ``most`` bytes at most off the queue, splitting the last one."""
        taken: list[memoryview] = []
        while self._chunks and most:
            chunk = self._chunks.popleft()
            if len(chunk) > most:
                self._chunks.appendleft(chunk[most:])
                chunk = chunk[:most]
            taken.append(chunk)
            most -= len(chunk)
            self._queued -= len(chunk)
        return taken


def _copy(chunks: list[memoryview], buffer: memoryview) -> int:
    end = 0
    for chunk in chunks:
        start, end = end, end + len(chunk)
        buffer[start:end] = chunk
    return end
