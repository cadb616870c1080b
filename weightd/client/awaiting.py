"""The client's effects, awaited in an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

from weightd.client import doors
from weightd.client.answers import Incoming, Pending
from weightd.client.effects import (
    Answer,
    Begin,
    Close,
    Do,
    Effect,
    Flow,
    NextLine,
    Pause,
    Request,
    Rest,
    Settle,
    Stopped,
    Tell,
)
from weightd.client.http1 import BrokenAnswer, rendered

T = TypeVar("T")

IDLE_CONNECTIONS: Final = 4

LOST: Final = (OSError, BrokenAnswer)


class Connection(Pending, asyncio.Protocol):
    """One connection; what comes is read as it comes, and whoever waits is woken."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._lost: Exception | None = None

    # -- What asyncio tells --------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def eof_received(self) -> None:
        self._take(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._lost or exc or BrokenAnswer("the connection was closed")
        self._may_write.set()
        self._changed.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _take(self, data: bytes) -> None:
        try:
            self.incoming.receive(data)
        except BrokenAnswer as broken:
            self._lost = broken
        if not data and self.incoming.ended:
            # It takes no other request.
            self.incoming.reusable = False
        self._changed.set()

    # -- What the flows ask --------------------------------------------------------

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def send(self, request: Request) -> None:
        """As the blocking connection's.  Raises OSError, BrokenAnswer and TimeoutError."""
        self.incoming = Incoming(request.method)
        self._write(rendered(request))
        if request.body is None:
            return
        await self._until(lambda incoming: incoming.answering, request.patience)
        pieces = request.body.pieces()
        while not self.incoming.ended and self.incoming.head is None and self._lost is None:
            # Reading it may block.
            piece = await asyncio.to_thread(_next, pieces)
            if piece is None:
                return
            self._write(piece)
            async with asyncio.timeout(request.patience):
                await self._may_write.wait()

    async def answer(self, patience: float) -> Answer:
        await self._until(lambda incoming: incoming.ended, patience)
        return self.incoming.answer()

    async def line(self, patience: float) -> bytes | Answer | None:
        await self._until(lambda incoming: incoming.has_line, patience)
        return self.incoming.line()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None, "it is connected"
        if data:
            self._transport.write(data)

    async def _until(self, came: Callable[[Incoming], bool], patience: float) -> None:
        async with asyncio.timeout(max(0.0, patience)):
            while not came(self.incoming):
                if self._lost is not None:
                    raise self._lost
                self._changed.clear()
                await self._changed.wait()


class Transport:
    """Connections to the daemon, kept for the next request of the same loop."""

    def __init__(self, places: tuple[str, ...]) -> None:
        self._places = places
        self._idle: list[Connection] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def begin(self, effect: Begin) -> Connection:
        """See `Begin`."""
        kept = None if effect.fresh or not self._idle else self._idle.pop()
        connection = kept or await self._connect()
        sent = False
        try:
            await connection.send(effect.request)
            sent = True
        except TimeoutError:
            raise doors.silent(connection.place, effect.request.patience) from None
        except LOST as error:
            raise connection.failure(error) from error
        finally:
            if not sent:
                connection.close()
        return connection

    async def end(self, effect: Close) -> None:
        """See `Close`."""
        connection: Connection = effect.pending
        if connection.reusable and len(self._idle) < IDLE_CONNECTIONS:
            connection.kept = True
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> Connection:
        """A connection to the first place where somebody listens.  Raises Unreachable."""
        loop = asyncio.get_running_loop()
        failed = []
        for place in self._places:
            try:
                _, connection = await loop.create_unix_connection(_made(place), place)
            except OSError as error:
                failed.append((place, error))
            else:
                return connection
        # It looks at who may open the socket.
        raise await asyncio.to_thread(doors.unreachable, failed)


class Driver:
    """Runs flows over a transport.  ``stop`` ends the rests of those that run beside others."""

    def __init__(self, transport: Transport, stop: asyncio.Event | None = None) -> None:
        self._stop = stop
        self._doers: dict[type, Callable[[Any], Awaitable[Any]]] = {
            Begin: transport.begin,
            Settle: _settle,
            NextLine: _next_line,
            Close: transport.end,
            Pause: lambda effect: asyncio.sleep(effect.seconds),
            Rest: self._rest,
            Do: _do,
        }

    async def run(self, flow: Flow[T], tell: Callable[[Any], object] | None = None) -> T:
        """Do what the flow asks until it ends; what it tells goes to ``tell``."""
        outcome: list[T] = []
        async with aclosing(self.steps(flow, outcome.append)) as steps:
            async for told in steps:
                if tell is not None:
                    tell(told)
        return outcome[0]

    async def steps(
        self, flow: Flow[T], ended: Callable[[T], object] | None = None
    ) -> AsyncGenerator[Any, None]:
        """The same, with what it tells as items, and the outcome for ``ended``."""
        reply: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect: Effect = flow.send(reply) if failure is None else flow.throw(failure)
            except StopIteration as end:
                if ended is not None:
                    ended(cast(T, end.value))
                return
            except Stopped:
                return
            reply, failure = None, None
            try:
                if isinstance(effect, Tell):
                    yield effect.what
                else:
                    reply = await self._doers[type(effect)](effect)
            except GeneratorExit:
                failure = Stopped()
            except BaseException as raised:  # noqa: BLE001 - it is the flow's to handle
                failure = raised

    async def _rest(self, effect: Rest) -> bool:
        assert self._stop is not None, "only what runs beside others rests"
        try:
            async with asyncio.timeout(effect.seconds):
                return await self._stop.wait()
        except TimeoutError:
            return False


async def _settle(effect: Settle) -> Answer | None:
    connection: Connection = effect.pending
    try:
        return await connection.answer(effect.seconds)
    except TimeoutError:
        return None
    except LOST as error:
        raise connection.failure(error) from error


async def _next_line(effect: NextLine) -> bytes | Answer | None:
    connection: Connection = effect.pending
    try:
        return await connection.line(effect.seconds)
    except TimeoutError:
        raise doors.silent(connection.place, effect.seconds) from None
    except LOST as error:
        raise connection.failure(error) from error


async def _do(effect: Do) -> object:
    """Done to its end also when nobody waits any more: what it opens is there to be closed."""
    doing = asyncio.ensure_future(asyncio.to_thread(effect.act))
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            # It may be said again, by whoever waits for this to end.
            cancelled = error
    if cancelled is None:
        return doing.result()
    # Seen, so that it is not reported as lost: the cancellation goes first.
    if not doing.cancelled():
        doing.exception()
    raise cancelled


def _made(place: str) -> Callable[[], Connection]:
    return lambda: Connection(place)


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
