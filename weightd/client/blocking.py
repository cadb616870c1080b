"""The client's effects, done by blocking the thread that asks."""

from __future__ import annotations

# What `socket` makes of this module (enumerations, selectors) takes longer than a lookup.
import _socket
import os
import select
import struct
import time

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

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator
    from typing import Any, Final, TypeVar

    T = TypeVar("T")

READ_BYTES: Final = 256 * 1024
IDLE_CONNECTIONS: Final = 4

CONNECT_SECONDS: Final = 10
"""A daemon that is stopped, or hangs, takes no more connections than its queue has room for."""

LOST: Final = (OSError, BrokenAnswer)

_PATIENT: Final = struct.pack("@ll", CONNECT_SECONDS, 0)


class Silent(Exception):
    """Nothing came in time."""


class Connection(Pending):
    """One connection, whose thread waits for what comes."""

    def __init__(self, peer: _socket.socket, place: str) -> None:
        super().__init__(place)
        self._peer = peer

    def close(self) -> None:
        self._peer.close()

    def send(self, request: Request) -> None:
        """Send a request; its body as soon as it is asked for, and no further once refused.

        Raises OSError, BrokenAnswer and Silent.
        """
        self.incoming = Incoming(request.method)
        self._peer.settimeout(request.patience)
        self._peer.sendall(rendered(request))
        if request.body is None:
            return
        self._receive_until(lambda incoming: incoming.answering, request.patience)
        try:
            for piece in request.body.pieces():
                if self.incoming.ended or self._readable(0.0):
                    # An answer before the body's end is a refusal: what follows is not read.
                    return
                self._peer.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            # Why it was refused may still be there to read.
            return

    def answer(self, patience: float) -> Answer:
        """The whole answer.  Raises OSError, BrokenAnswer and Silent."""
        self._receive_until(lambda incoming: incoming.ended, patience)
        return self.incoming.answer()

    def line(self, patience: float) -> bytes | Answer | None:
        """See `NextLine`.  Raises OSError, BrokenAnswer and Silent."""
        self._receive_until(lambda incoming: incoming.has_line, patience)
        return self.incoming.line()

    def _receive_until(self, came: Callable[[Incoming], bool], patience: float) -> None:
        until = time.monotonic() + patience
        while not came(self.incoming):
            if not self._readable(until - time.monotonic()):
                raise Silent
            self.incoming.receive(self._peer.recv(READ_BYTES))

    def _readable(self, seconds: float) -> bool:
        """Whether something came, or the peer closed, within so many seconds."""
        poll = select.poll()
        poll.register(self._peer, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))


class Transport:
    """Connections to the daemon, kept for the next request; any thread may use it."""

    def __init__(self, places: tuple[str, ...]) -> None:
        self._places = places
        self._idle: list[Connection] = []
        self._owner = os.getpid()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def begin(self, effect: Begin) -> Connection:
        """See `Begin`."""
        connection = (None if effect.fresh else self._kept()) or self._connect()
        sent = False
        try:
            connection.send(effect.request)
            sent = True
        except (Silent, TimeoutError):
            raise doors.silent(connection.place, effect.request.patience) from None
        except LOST as error:
            raise connection.failure(error) from error
        finally:
            if not sent:
                connection.close()
        return connection

    def end(self, effect: Close) -> None:
        """See `Close`."""
        connection: Connection = effect.pending
        if connection.reusable and len(self._idle) < IDLE_CONNECTIONS:
            connection.kept = True
            self._idle.append(connection)
        else:
            connection.close()

    def _connect(self) -> Connection:
        """A connection to the first place where somebody listens.  Raises Unreachable."""
        failed = []
        for place in self._places:
            peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            # Not by settimeout, with which a full queue is an error at once.
            peer.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _PATIENT)
            try:
                peer.connect(place)
            except OSError as error:
                peer.close()
                failed.append((place, error))
            else:
                return Connection(peer, place)
        raise doors.unreachable(failed)

    def _kept(self) -> Connection | None:
        """A connection that was used before, unless this process was forked from its owner."""
        if self._owner != os.getpid():
            self._idle, self._owner = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None


class Driver:
    """Runs flows over a transport.  ``stop`` ends the rests of those that run beside others."""

    def __init__(self, transport: Transport, stop: threading.Event | None = None) -> None:
        self._stop = stop
        self._doers: dict[type, Callable[[Any], Any]] = {
            Begin: transport.begin,
            Settle: _settle,
            NextLine: _next_line,
            Close: transport.end,
            Pause: lambda effect: time.sleep(effect.seconds),
            Rest: self._rest,
            Do: lambda effect: effect.act(),
        }

    def run(self, flow: Flow[T], tell: Callable[[Any], object] | None = None) -> T:
        """Do what the flow asks until it ends; what it tells goes to ``tell``."""
        steps = self.steps(flow)
        try:
            while True:
                told = next(steps)
                if tell is not None:
                    tell(told)
        except StopIteration as ended:
            outcome: T = ended.value
            return outcome
        finally:
            steps.close()

    def steps(self, flow: Flow[T]) -> Generator[Any, None, T]:
        """The same, with what it tells as items; closing it ends the flow."""
        reply: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect: Effect = flow.send(reply) if failure is None else flow.throw(failure)
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            except Stopped:
                raise GeneratorExit from None
            reply, failure = None, None
            try:
                if isinstance(effect, Tell):
                    yield effect.what
                else:
                    reply = self._doers[type(effect)](effect)
            except GeneratorExit:
                failure = Stopped()
            except BaseException as raised:  # noqa: BLE001 - it is the flow's to handle
                failure = raised

    def _rest(self, effect: Rest) -> bool:
        assert self._stop is not None, "only what runs beside others rests"
        return self._stop.wait(effect.seconds)


def _settle(effect: Settle) -> Answer | None:
    connection: Connection = effect.pending
    try:
        return connection.answer(effect.seconds)
    except (Silent, TimeoutError):
        return None
    except LOST as error:
        raise connection.failure(error) from error


def _next_line(effect: NextLine) -> bytes | Answer | None:
    connection: Connection = effect.pending
    try:
        return connection.line(effect.seconds)
    except (Silent, TimeoutError):
        raise doors.silent(connection.place, effect.seconds) from None
    except LOST as error:
        raise connection.failure(error) from error
