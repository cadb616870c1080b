"""A connection's socket, lent to a worker thread for one body (`weightd.api.direct`)."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from weightd.api.direct import Lent

if TYPE_CHECKING:
    from weightd.api.protocol import EdgeProtocol


class Loans:
    """What one request may borrow (`direct.Lender`); requests may wait in a row behind it."""

    def __init__(self, connection: EdgeProtocol, cycle: RequestResponseCycle) -> None:
        self.gone: asyncio.Event = connection.gone
        self._connection = connection
        self._cycle = cycle

    def lend_body(self) -> Lent | None:
        cycle, transport = self._cycle, self._connection.transport
        if not cycle.more_body or cycle.disconnected or transport.is_closing():
            return None
        self._connection.flow.pause_reading()
        if cycle.waiting_for_100_continue:
            cycle.waiting_for_100_continue = False
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return Lent(_duplicate(transport), head)

    def take_back(self, left: int) -> None:
        if not self.gone.is_set():
            self._connection.rest_of_body(left)

    async def lend_output(self, within: float) -> socket.socket:
        transport = self._connection.transport
        self._must_stand(transport)
        # What was written there goes first: nothing may be left of it.
        transport.set_write_buffer_limits(high=0)
        await asyncio.wait_for(self._connection.flow.drain(), within)
        self._must_stand(transport)
        transport.set_write_buffer_limits()
        return _duplicate(transport)

    @staticmethod
    def _must_stand(transport: asyncio.Transport) -> None:
        if transport.is_closing():
            raise ConnectionError

    def output_sent(self, size: int) -> None:
        self._cycle.expected_content_length -= size


def _duplicate(transport: asyncio.Transport) -> socket.socket:
    """The connection's socket under a number of its own, which nobody else closes."""
    found: socket.socket = transport.get_extra_info("socket")
    return socket.socket(fileno=os.dup(found.fileno()))
