"""The byte path out: from a file to a connection's socket by ``sendfile``, in a worker thread.

The bytes never enter this process, and the loop never waits for a disk.  A
thread keeps one sending for a turn only, so that readers share the threads; a
reader that is not ready has none, the loop waits for him.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weightd.api.direct import Lender, Patience
from weightd.cache.tasks import completed

TURN_SECONDS: Final = 0.05
"""How long a thread stays with one reader."""

PATIENCE_MILLISECONDS: Final = 5
"""How long a thread waits for a reader before it leaves that to the loop."""

STEP: Final = 8 << 20
"""Sent by one call: what a cold disk takes a moment for."""

SEND_BUFFER: Final = 1 << 20
"""What a unix socket may hold that its reader has not taken.

With the usual 208 KiB sender and reader wait for each other five times as often.
The kernel gives no more than net.core.wmem_max, twice.
"""


class Cut(Exception):
    """The answer ended ``left`` bytes before its end; ``reason`` is None when its peer has gone."""

    def __init__(self, left: int, reason: str | None) -> None:
        super().__init__(f"{left} bytes were not sent: {reason or 'the peer has gone'}")
        self.left = left
        self.reason = reason


class Sender:
    """Sends ``left`` bytes of a file from ``at`` on over a non-blocking socket."""

    def __init__(self, connection: socket.socket, descriptor: int, at: int, left: int) -> None:
        self.left = left
        self._connection = connection
        self._descriptor = descriptor
        self._at = at
        self._ready = select.poll()
        self._ready.register(connection, select.POLLOUT)
        if connection.family == socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        os.posix_fadvise(descriptor, at, left, os.POSIX_FADV_SEQUENTIAL)

    def turn(self) -> bool:
        """Send for a while; False when the reader is not ready.  For a worker thread.

        Raises OSError, of which ConnectionError is for a peer that has gone, and EOFError.
        """
        end = time.monotonic() + TURN_SECONDS
        while self.left and time.monotonic() < end:
            try:
                sent = os.sendfile(
                    self._connection.fileno(), self._descriptor, self._at, min(self.left, STEP)
                )
            except BlockingIOError:
                if not self._ready.poll(PATIENCE_MILLISECONDS):
                    return False
                continue
            if not sent:
                raise EOFError
            self._at += sent
            self.left -= sent
        return True

    def untaken(self) -> int:
        """How many bytes the socket holds that the reader has not taken."""
        answer = fcntl.ioctl(self._connection, termios.TIOCOUTQ, struct.pack("i", 0))
        return int(struct.unpack("i", answer)[0])


async def send_file(
    lender: Lender, descriptor: int, at: int, left: int, idle_timeout: float
) -> None:
    """Send the body of an answer whose head is written: ``left`` bytes of a file from ``at`` on.

    The reader has ``idle_timeout`` seconds for each `direct.PACE` bytes, in which he is waited
    for.  Raises Cut.
    """
    sender = None
    try:
        with await lender.lend_output(idle_timeout) as borrowed:
            sender = Sender(borrowed, descriptor, at, left)
            await _send(sender, borrowed, lender, Patience(idle_timeout, None))
    except (OSError, EOFError) as error:
        untold = left if sender is None else sender.left
        raise Cut(untold, _reason(error, idle_timeout)) from error
    lender.output_sent(left)


def _reason(error: OSError | EOFError, idle_timeout: float) -> str | None:
    match error:
        case ConnectionError():
            return None
        case TimeoutError():
            return f"the reader took nothing for {idle_timeout:g} s"
        case EOFError():
            return "the file is shorter than its record"
    return str(error)


async def _send(
    sender: Sender, borrowed: socket.socket, lender: Lender, patience: Patience
) -> None:
    loop, size, taken = asyncio.get_running_loop(), sender.left, 0
    while sender.left:
        # A turn is short, and nothing that it uses is closed under it.
        if not await completed(loop.run_in_executor(None, sender.turn)):
            begun = loop.time()
            ready = await _ready(borrowed, lender, patience.seconds)
            patience.waited(loop.time() - begun)
            before, taken = taken, max(taken, size - sender.left - sender.untaken())
            patience.came(taken - before)
            if not ready and not patience.seconds:
                raise TimeoutError
        if lender.gone.is_set():
            raise ConnectionError


async def _ready(borrowed: socket.socket, lender: Lender, seconds: float) -> bool:
    """Wait until it pays to send again, or the reader has gone; False after so many seconds."""
    with _watched(borrowed) as ready:
        waits = [asyncio.ensure_future(one.wait()) for one in (ready, lender.gone)]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return bool(done)
        finally:
            for wait in waits:
                wait.cancel()


@contextmanager
def _watched(connection: socket.socket) -> Iterator[asyncio.Event]:
    """An event that is set once the socket takes bytes again."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(connection, ready.set)
    try:
        yield ready
    finally:
        loop.remove_writer(connection)
