"""The byte paths past the event loop: what a worker thread does on a connection's own socket.

A large body costs the loop a callback, an object and a copy for every 64 KiB;
here one thread moves it between socket and file, and the loop has the
connection back afterwards (`protocol.EdgeProtocol.lend_body`).
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from weightd.errors import IncompleteBody, Stalled, WeightdError

PACE: Final = 64 * 1024
"""How many bytes a peer must send, or take, within each idle timeout while a body goes on."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A duplicate of a connection's socket, and what of the body came before it was lent."""

    socket: socket.socket
    head: bytes


class Lender(Protocol):
    """A connection that lends its socket to a thread; ``gone`` is set once it is lost."""

    gone: asyncio.Event

    def lend_body(self) -> Lent | None:
        """Stop reading, and leave the rest of a body of known length to the caller.

        None when there is no rest any more.
        """
        ...

    def take_back(self, left: int) -> None:
        """Read on, with ``left`` bytes of the body still to come."""
        ...

    async def lend_output(self, within: float) -> socket.socket:
        """A duplicate of the socket, to send an answer's body by when its head is out.

        The caller closes it.  Raises TimeoutError when the head was not taken ``within`` so
        many seconds, ConnectionError when the peer has gone, OSError.
        """
        ...

    def output_sent(self, size: int) -> None:
        """Count bytes of the answer's body that were sent by the duplicate."""
        ...


class Patience:
    """How long a peer may still keep a body waiting.

    ``idle_timeout`` is how many seconds it has for each `PACE` bytes, and for
    what is left at the end, while it is its turn; time that the disk takes does
    not count.  ``length`` is what it declared to send, None when it did not.
    """

    def __init__(self, idle_timeout: float, length: int | None) -> None:
        self._idle_timeout = idle_timeout
        self._length = length
        self._received = 0
        self._due = PACE
        self._waited = 0.0

    @property
    def seconds(self) -> float:
        """What is left of it."""
        return max(0.0, self._idle_timeout - self._waited)

    def waited(self, seconds: float) -> None:
        """Say that the peer was waited for."""
        self._waited += seconds

    def came(self, size: int) -> None:
        """Say that so many bytes came, or were taken."""
        self._received += size
        if self._received >= self._due:
            self._due, self._waited = self._received + PACE, 0.0

    def stalled(self) -> Stalled:
        """That it is over."""
        return Stalled("The request's body", self._idle_timeout)

    def incomplete(self) -> IncompleteBody:
        """That the body ends with what has been received so far."""
        return IncompleteBody(received=self._received, declared=self._length)


class SocketSource:
    """The rest of a body, read from a socket by the thread that writes it to disk.

    ``connection`` is a duplicate, non-blocking, and closed here; ``head`` is what the
    loop had received already, ``left`` how many bytes follow it.  Not one byte
    behind the body is taken.
    """

    def __init__(
        self, connection: socket.socket, head: bytes, left: int, patience: Patience
    ) -> None:
        self._connection = connection
        self._head = memoryview(head)
        self._left = left
        self._patience = patience
        try:
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            connection.close()
            raise
        self._ready = select.poll()
        self._ready.register(connection, select.POLLIN)
        self._ready.register(self._woken, select.POLLIN)
        # Held while a byte may be taken, never while one is waited for.
        self._taking = Lock()
        self._waiting = False
        self._error: WeightdError | None = None

    def readinto(self, buffer: memoryview) -> int:
        """Wait for bytes and take them; 0 at the body's end.  For the reader's thread.

        Raises IncompleteBody, Stalled, and what `close` was given.
        """
        while True:
            with self._taking:
                if self._error is not None:
                    raise self._error
                taken = self._take(buffer)
                self._waiting = taken is None
            if taken is not None:
                return taken
            self._wait()

    def close(self, error: WeightdError) -> int:
        """Let the reader take nothing any more, and raise ``error``; how many bytes are left."""
        with self._taking:
            if self._error is None:
                self._error = error
                if self._waiting:
                    os.eventfd_write(self._woken, 1)
                else:
                    self._let_go()
            return self._left

    def _take(self, buffer: memoryview) -> int | None:
        """What is there without waiting: a count, None for nothing yet."""
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count], self._head = self._head[:count], self._head[count:]
        elif not self._left:
            return 0
        else:
            try:
                count = self._connection.recv_into(buffer, min(len(buffer), self._left))
            except BlockingIOError:
                return None
            except ConnectionError:
                count = 0
            if not count:
                raise self._patience.incomplete()
            self._left -= count
        self._patience.came(count)
        return count

    def _wait(self) -> None:
        begun = time.monotonic()
        ready = self._ready.poll(self._patience.seconds * 1000)
        self._patience.waited(time.monotonic() - begun)
        with self._taking:
            self._waiting = False
            if self._error is not None:
                self._let_go()
                raise self._error
        if not ready:
            raise self._patience.stalled()

    def _let_go(self) -> None:
        """Close what only the reader could still be using, which it no longer is."""
        self._connection.close()
        os.close(self._woken)
