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

from weightd.api.direct import PACE, Lender
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

    Raises Cut, also when the peer takes nothing for ``idle_timeout`` seconds.
    """
    borrowed = await lender.lend_output(idle_timeout)
    if borrowed is None:
        raise Cut(left, None)
    with borrowed:
        sender = Sender(borrowed, descriptor, at, left)
        try:
            await _send(sender, borrowed, lender, idle_timeout)
        except ConnectionError:
            raise Cut(sender.left, None) from None
        except TimeoutError:
            raise Cut(sender.left, f"the reader took nothing for {idle_timeout:g} s") from None
        except EOFError:
            raise Cut(sender.left, "the file is shorter than its record") from None
        except OSError as error:
            raise Cut(sender.left, str(error)) from error
    lender.output_sent(left)


async def _send(
    sender: Sender, borrowed: socket.socket, lender: Lender, idle_timeout: float
) -> None:
    loop = asyncio.get_running_loop()
    while sender.left:
        # A turn is short, and nothing that it uses is closed under it.
        if not await completed(loop.run_in_executor(None, sender.turn)):
            await _ready(sender, borrowed, lender, idle_timeout)
        if lender.gone.is_set():
            raise ConnectionError


async def _ready(
    sender: Sender, borrowed: socket.socket, lender: Lender, idle_timeout: float
) -> None:
    """Wait until the reader took so much that it pays to send, or has gone.

    Raises TimeoutError when he takes less than `PACE` bytes meanwhile.
    """
    untaken = sender.untaken()
    with _watched(borrowed) as ready:
        waits = [asyncio.ensure_future(one.wait()) for one in (ready, lender.gone)]
        try:
            while not (
                await asyncio.wait(waits, timeout=idle_timeout, return_when=asyncio.FIRST_COMPLETED)
            )[0]:
                before, untaken = untaken, sender.untaken()
                if before - untaken < PACE:
                    raise TimeoutError
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
