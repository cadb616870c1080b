"""The HTTP parser's refusals, which come before any app: as problem documents, within bounds.

uvicorn answers what its parser refuses in plain text, closes under a peer that
still sends, and has no limit on the size or the time of a request's head.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from asyncio import TimerHandle
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from weightd.api.connections import Connections
from weightd.api.loans import Loans
from weightd.api.metrics import RequestTimes
from weightd.api.routing import Door
from weightd.api.unparsed import told, written
from weightd.errors import Draining, InvalidRequest, Stalled, TooMany, WeightdError
from weightd.request_id import RequestIds

HEAD_SECONDS: Final = 20.0
"""How long a peer may take for the request line and headers."""

HEAD_BYTES_MAX: Final = 64 * 1024

LINGER_SECONDS: Final = 2.0
"""How long what a refused peer still sends is thrown away, so that it sees its answer."""

FIRST_REQUEST_SECONDS: Final = 3.0
NEXT_REQUEST_SECONDS: Final = 1.0
"""How long who connected and said nothing yet, and who had an answer and may ask again, are still
heard while the daemon hands over to its next instance."""

CONNECTION: Final = "weightd.connection"
"""The ASGI extension of this server.

``gone`` is an event that is set once the connection is lost; ``abort`` closes it
at once, without waiting for a peer to take what it was sent; ``lender`` lends its
socket (`weightd.api.direct`); ``owner`` is the user and group behind it as the kernel
saw it connect, None behind no unix socket; ``replica`` says whether it is at that door.
"""

_PEER: Final = struct.Struct("3i")
"""What SO_PEERCRED answers: process, user, group."""


class _TooMuch(Exception):
    """The head, or the trailers behind a body, are longer than any client's."""


class EdgeProtocol(HttpToolsProtocol):
    """One connection at a ``door``.  `app.protocol_of` makes what uvicorn takes as ``http``."""

    def __init__(
        self,
        *arguments: Any,
        connections: Connections,
        ids: RequestIds,
        times: RequestTimes,
        door: Door,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._ids = ids
        self._connections = connections
        self._times = times
        self._door = door
        self._owner: tuple[int, int] | None = None
        self._untaken = 0
        self._resumed = False
        self.gone = asyncio.Event()
        self._head: bytearray | None = bytearray()
        self._field_bytes = 0
        self._head_timer: TimerHandle | None = None
        self._refused = False
        # What is still to come of a body that the parser was spared.
        self._rest = 0
        # Of requests in a row ``cycle`` is the last, and this the one being answered.
        self._answered: RequestResponseCycle | None = None
        # Done once the last request is here, or none is to come; None before the handing over.
        self._heard: asyncio.Future[None] | None = None
        self._deaf = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._connections.enter(self, self._door):
            self._turn_away()
            return
        if self._door in ("admin", "replica"):
            self._owner = _peer(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        self.gone.set()
        self._has_heard()
        self._stop_head_timer()
        if self._answered is not None and not self._answered.response_complete:
            # The server tells the last in a row, and no one else.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._rest:
            data = self._take_rest(data)
            if not data:
                return
        self._unset_keepalive_if_required()
        if self._head is not None:
            self._expect_head()
            self._head += data[: HEAD_BYTES_MAX + 1]
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No protocol to upgrade to is spoken here; what follows cannot be read as requests.
            self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _TooMuch):
                self._refuse(InvalidRequest("headers", f"they exceed {HEAD_BYTES_MAX} bytes"))
                return
            self._refuse(told(error, bytes(self._head or b"")))
        if self._head is not None and len(self._head) > HEAD_BYTES_MAX:
            self._refuse(InvalidRequest("headers", f"they exceed {HEAD_BYTES_MAX} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._field_bytes += len(name) + len(value)
        if self._field_bytes > HEAD_BYTES_MAX:
            raise _TooMuch
        # After the head it is a trailer, and never one of the fields that the request is read by.
        if self._head is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        if self.parser.get_http_version() == "1.0":
            # RFC 9110, 10.1.1: it would take what asks for the body for the answer.
            self.expect_100_continue = False
        super().on_headers_complete()
        self._head = None
        if self._heard is not None:
            # The task that answers has not begun, and says that the connection closes.
            self.cycle.keep_alive = False
            self._has_heard()
        # The task that answers has been made and not yet begun.
        self.scope["extensions"] = {
            CONNECTION: {
                "gone": self.gone,
                "abort": self.transport.abort,
                "lender": Loans(self, self.cycle),
                "owner": self._owner,
                "replica": self._door == "replica",
            }
        }

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head = bytearray()
        self._field_bytes = 0

    # -- A body that the parser is spared (`weightd.api.direct`) ---------------------

    def rest_of_body(self, left: int) -> None:
        """Take the next ``left`` bytes for the end of a body; behind it comes the next request."""
        self._rest = left
        if not left:
            self._end_body()

    def _take_rest(self, data: bytes) -> bytes:
        """Pass on what belongs to the body; what is behind it."""
        body, behind = data[: self._rest], data[self._rest :]
        self._rest -= len(body)
        self.on_body(body)
        if not self._rest:
            self._end_body()
        return behind

    def _end_body(self) -> None:
        self.on_message_complete()
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # -- The handing over to the next instance -------------------------------------

    def hand_over(self) -> asyncio.Future[None]:
        """Answer the next request, if it comes within a moment, as the last on this connection.

        Who connected before nobody took connections here any more is not refused, and who
        keeps the connection is told to make another.  Done when no further request comes.
        """
        self._heard = self.loop.create_future()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False
            self._has_heard()
        else:
            # An answer that has begun did not say that the connection closes.
            moment = FIRST_REQUEST_SECONDS if cycle is None else NEXT_REQUEST_SECONDS
            self.loop.call_later(moment, self._hear_no_more)
        return self._heard

    def _has_heard(self) -> None:
        if self._heard is not None and not self._heard.done():
            self._heard.set_result(None)

    def _hear_no_more(self) -> None:
        """Close, but answer what was sent before: what is sent later fails at its sender.

        Only unix sockets can do that; over TCP what crosses the closing is lost, as ever.
        """
        if self._busy():
            self.cycle.keep_alive = False
        elif not self.transport.is_closing():
            if self._head:
                self._refuse(Draining())
            elif not _shut_for_reading(self.transport):
                self.transport.close()
            self._deaf = True
        # Until the loop has read what was sent before.
        self.loop.call_later(0.0, self._has_heard)

    def _busy(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open for an answer."""
        return self._deaf and self._busy()

    # -- A place among the connections --------------------------------------------

    def takes_its_answer(self) -> bool:
        untaken = self.transport.get_write_buffer_size()
        takes = self._resumed or not untaken or untaken < self._untaken
        self._untaken, self._resumed = untaken, False
        return takes

    def cut(self) -> None:
        self.transport.abort()

    def resume_writing(self) -> None:
        self._resumed = True
        super().resume_writing()

    def _turn_away(self) -> None:
        """Say that there are too many, to as many as may wait until they have read it."""
        self._refused = True
        self._write(TooMany("connections", self._connections.limit))
        if self._connections.linger(self):
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        else:
            self.transport.close()

    # -- The head, within its bounds ---------------------------------------------

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        if self._head:
            self._refuse(Stalled("The request's head", HEAD_SECONDS))
        else:
            self.transport.close()

    # -- Refusals -------------------------------------------------------------------

    def _refuse(self, error: WeightdError) -> None:
        """Answer on the bare connection, unless a request under way is being answered on it."""
        if self._refused:
            return
        self._refused = True
        self._stop_head_timer()
        if self._leave_to_request_under_way():
            return
        self._write(error)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _write(self, error: WeightdError) -> None:
        self._times.count_problem(error.code)
        self.transport.write(written(error, self._ids.new()))

    def _leave_to_request_under_way(self) -> bool:
        """Whether a request is being answered, after which or at once the connection closes.

        One whose own body is what cannot be parsed is told that its peer has
        gone, and the refusal is the only answer.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        if cycle.more_body and cycle is not self._answered:
            return self._drop_last_in_row()
        cycle.keep_alive = False
        if not cycle.more_body:
            return True
        if cycle.response_started:
            self.transport.close()
            return True
        cycle.disconnected = True
        cycle.message_event.set()
        return False

    def _drop_last_in_row(self) -> bool:
        """Forget a request that waits behind others, after whose answers the connection closes.

        Written now, a refusal would stand in the middle of the answer under way.
        """
        self.pipeline.popleft()
        before = self.pipeline[0][0] if self.pipeline else self._answered
        assert before is not None, "whoever waits in the row waits for somebody"
        before.keep_alive = False
        self.cycle = before
        return True


def _peer(transport: asyncio.Transport) -> tuple[int, int] | None:
    found: socket.socket = transport.get_extra_info("socket")
    if found.family != socket.AF_UNIX:
        return None
    credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, gid = _PEER.unpack(credentials)
    return uid, gid


def _shut_for_reading(transport: asyncio.Transport) -> bool:
    """Have the kernel take no more from the peer, which is told so; False over TCP."""
    found: socket.socket = transport.get_extra_info("socket")
    if found.family != socket.AF_UNIX:
        return False
    with socket.socket(fileno=os.dup(found.fileno())) as one:
        try:
            one.shutdown(socket.SHUT_RD)
        except OSError:
            return False  # the peer has gone
    return True
