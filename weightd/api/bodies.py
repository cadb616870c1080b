"""The byte path in: from the connection to the one worker thread that writes.

A body of known length is read by that thread itself (`direct.SocketSource`).
The others, whose end only the parser knows, come by way of the loop: it queues
the chunks as they arrive, and the thread copies them into the buffer its caller
reuses.  A queue of two handovers lets the network fill one while the disk takes
the other, and beyond that the loop stops receiving, which stops the peer.  The
thread is woken once per handover, not once per chunk: a thread hop costs more
than copying 64 KiB does.

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

from weightd.api.direct import Lender, Patience, SocketSource
from weightd.cache.records import Source
from weightd.errors import IncompleteBody, WeightdError

HANDOVER: Final = 512 * 1024
"""How many bytes wake the thread."""

QUEUED_MAX: Final = 2 * HANDOVER
"""How many bytes wait for the thread before the loop stops receiving."""


class RequestBody:
    """The body of one request as a flow that has not begun (`weightd.cache.records.Body`).

    ``lender`` is the connection, None where it is not ours.  ``length`` is what the
    peer declared, None when it did not; ``idle_timeout`` is how patient to be with
    it, see `Patience`.
    """

    def __init__(
        self,
        receive: Receive,
        lender: Lender | None = None,
        *,
        length: int | None,
        idle_timeout: float,
    ) -> None:
        self._receive = receive
        self._lender = lender
        self._length = length
        self._patience = Patience(idle_timeout, length)
        self._source: _Pipe | SocketSource | None = None
        self._flow: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Source:
        lent = self._lender.lend_body() if self._lender is not None and self._length else None
        if self._lender is None or self._length is None or lent is None:
            self._source = pipe = _Pipe(asyncio.get_running_loop())
            flow = self._run(pipe)
        else:
            left = self._length - len(lent.head)
            self._source = source = SocketSource(lent.socket, lent.head, left, self._patience)
            flow = self._watch(self._lender, source)
        self._flow = asyncio.create_task(flow, name="request body")
        return self._source

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._source is None or self._flow is None:
            return
        # The thread first: should this wait be cancelled, no reader is left asleep.
        left = self._source.close(self.incomplete())
        self._flow.cancel()
        if self._lender is not None and left is not None:
            self._lender.take_back(left)
        await asyncio.wait({self._flow})
        if left == 0:
            # It is there, and tells whoever counts that the body is over.
            await self._receive()

    async def _watch(self, lender: Lender, source: SocketSource) -> None:
        """Let the reader go when the connection is cut here, of which a duplicate hears nothing."""
        await lender.gone.wait()
        source.close(self.incomplete())

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
            async with asyncio.timeout(self._patience.seconds):
                message = await self._receive()
        except TimeoutError:
            raise self._patience.stalled() from None
        self._patience.waited(clock() - begun)
        if message["type"] == "http.disconnect":
            raise self.incomplete()
        chunk: bytes = message.get("body", b"")
        self._patience.came(len(chunk))
        return chunk, message.get("more_body", False)

    @property
    def begun(self) -> bool:
        """Whether the body was asked for."""
        return self._flow is not None

    def incomplete(self) -> IncompleteBody:
        """That the body ends with what has been received so far."""
        return self._patience.incomplete()


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
        """Make the reader raise ``error`` from now on, whatever is still queued.

        Answers None: what is left of the body is for the loop to know.
        """
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
