"""One socket to one origin: connected to an address that was looked at, cut from any thread."""

from __future__ import annotations

import errno
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from weightd.origins.addresses import address_refusal, refusal
from weightd.origins.contract import Patience
from weightd.origins.proxies import Proxy, proxy_for
from weightd.origins.speaking import Refused

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

SLOWEST_BYTES: Final = 64 << 10
"""What must arrive, or the end, while a reader has waited for `Patience.progress` in all."""

FRAMING_BYTES: Final = 256 << 10
"""What may come beside a body's own bytes: the lengths of its chunks, and trailers, ..."""

FRAMING_TIMES: Final = 8
"""... and this for each byte: chunks of a byte are as many times as long, and no attack."""

_TOO_MUCH: Final = "it sends more around the bytes of a body than there are bytes"


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask: what two requests have in common that may use the same connection."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """As the Host header says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"


Found: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""One address of a name, as `socket.getaddrinfo` tells it."""

Guard: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Makes what it is given end the wait of its block, whenever another thread wants to."""


class Wire:
    """A connected socket whose every wait has a bound.

    `http.client` takes it for a socket.  ``cut`` may be called by any thread;
    all else by the one that uses it.
    """

    def __init__(self, connected: socket.socket, patience: Patience) -> None:
        self.cut_off = False
        self.proxied: Proxy | None = None
        self._socket = connected
        self._patience = patience
        self._deadline: float | None = None
        self._waited = 0.0
        self._received = 0
        self._allowed: int | None = None
        self._body = 0
        connected.settimeout(patience.progress)

    def sendall(self, data: ReadableBuffer) -> None:
        """Send a request."""
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What `http.client` reads an answer through; it may close it, the socket stays."""
        return io.BufferedReader(_Incoming(self))

    def expect_head(self) -> None:
        """A whole head must arrive in time from now on, not only its next byte."""
        self._deadline = time.monotonic() + self._patience.progress

    def expect_body(self) -> None:
        """From now on the bytes of a body are read."""
        self._deadline = None
        self._waited, self._received = 0.0, 0
        self._allowed, self._body = None, 0
        self._socket.settimeout(self._patience.progress)

    def allow(self, size: int, taken: int) -> None:
        """Bound what is read for ``size`` bytes more of a chunked body, after ``taken`` of it.

        Raises Refused where what came so far was hardly of the body.
        """
        if self._body > FRAMING_TIMES * taken + FRAMING_BYTES:
            raise Refused(_TOO_MUCH)
        self._allowed = size + FRAMING_BYTES

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what there is.  Raises TimeoutError when it takes too long, Refused for too much."""
        before = time.monotonic()
        if self._deadline is not None:
            if before >= self._deadline:
                raise TimeoutError
            self._socket.settimeout(self._deadline - before)
        if self._allowed is not None and self._allowed <= 0:
            raise Refused(_TOO_MUCH)
        size = self._socket.recv_into(buffer)
        if self._allowed is not None:
            self._allowed -= size
            self._body += size
        if self.cut_off:
            # What was still under way when it was cut is not told as if it were all.
            raise ConnectionAbortedError
        if self._deadline is None:
            self._must_go_on(time.monotonic() - before, size)
        return size

    def _must_go_on(self, waited: float, size: int) -> None:
        """Raise TimeoutError for a peer that sends a byte now and then to keep it open."""
        self._waited += waited
        self._received += size
        if self._received >= SLOWEST_BYTES:
            self._waited, self._received = 0.0, 0
        elif self._waited > self._patience.progress:
            raise TimeoutError

    @property
    def idle(self) -> bool:
        """Whether nothing came in that nobody asked for, an end of the connection above all."""
        self._socket.settimeout(0)
        try:
            # A plain socket's own call: TLS would hide what lies in the kernel.
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(self._patience.progress)
        return False

    def cut(self) -> None:
        """Wake whoever reads or writes; it fails, and closes."""
        self.cut_off = True
        _shut(self._socket)

    def close(self) -> None:
        """Let the socket go."""
        self._socket.close()


class _Incoming(io.RawIOBase):
    """The reading side of a wire.  Closing it closes nothing."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._wire.readinto(buffer)


# -- Connecting ------------------------------------------------------------------


def dial(target: Target, patience: Patience, tls: ssl.SSLContext | None, guard: Guard) -> Wire:
    """Connect, through the proxy that the environment names if it does.

    Every wait on the way is one that ``guard`` can end.
    Raises Refused for a host that must not be asked, OSError as the system
    says, and TimeoutError.
    """
    deadline = time.monotonic() + patience.connect
    if (reason := refusal(target.host)) is not None:
        raise Refused(f"{reason}, which no weights are fetched from")
    try:
        proxy = proxy_for(target.scheme, target.host, target.port, os.environ)
    except ValueError as error:
        raise Refused(str(error)) from None
    if proxy is None:
        connected = _connect(target.host, target.port, deadline, guard, checked=True)
    else:
        # The operator's own proxy may stand at any address, and looks names up itself.
        connected = _connect(proxy.host, proxy.port, deadline, guard, checked=False)
    try:
        if tls is not None:
            if proxy is not None:
                with guard(partial(_shut, connected)):
                    _tunnel(connected, target, proxy, deadline)
            connected.settimeout(_left(deadline))
            connected = tls.wrap_socket(
                connected, server_hostname=target.host, do_handshake_on_connect=False
            )
            with guard(partial(_shut, connected)):
                connected.do_handshake()
        wire = Wire(connected, patience)
    except BaseException:
        connected.close()
        raise
    wire.proxied = proxy if tls is None else None
    return wire


def _connect(
    host: str, port: int, deadline: float, guard: Guard, *, checked: bool
) -> socket.socket:
    """Connect to the first address that answers; every one is looked at before any is asked."""
    found = look_up(host, port, deadline, guard)
    for *_, address in found if checked else ():
        if (reason := address_refusal(str(address[0]))) is not None:
            raise Refused(f"{host} is at {reason}, which no weights are fetched from")
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        connected = socket.socket(family, kind, protocol)
        try:
            _reach(connected, address, deadline, guard)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
        except OSError as error:
            connected.close()
            failure = error
    raise failure


def _reach(
    connected: socket.socket, address: tuple[Any, ...], deadline: float, guard: Guard
) -> None:
    """Connect a socket.  Raises TimeoutError, OSError."""
    connected.setblocking(False)
    # Begun before it is guarded: what is shut before it is connected can be connected still.
    number = connected.connect_ex(address)
    if number == errno.EINPROGRESS:
        with guard(partial(_shut, connected)):
            waiting = select.poll()
            waiting.register(connected, select.POLLOUT)
            if not waiting.poll(_left(deadline) * 1000):
                raise TimeoutError
        number = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, os.strerror(number))


def look_up(host: str, port: int, deadline: float, guard: Guard) -> Sequence[Found]:
    """The addresses of a name.  Raises TimeoutError, which the system's own resolver may not.

    It is asked by a thread of its own, which stays until it answers, since nothing ends it.
    """
    answer: Future[Sequence[Found]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            _settle(answer, error)
        else:
            _settle(answer, found)

    with guard(lambda: _settle(answer, ConnectionAbortedError())):
        threading.Thread(target=ask, name=f"look-up of {host:.100}", daemon=True).start()
        return answer.result(_left(deadline))


def _settle(answer: Future[Sequence[Found]], told: Sequence[Found] | Exception) -> None:
    """Give an answer, unless there is one."""
    try:
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            answer.set_result(told)
    except InvalidStateError:
        pass  # nobody waits any more


def _shut(connected: socket.socket) -> None:
    """Wake whoever waits for a socket, from any thread."""
    try:
        # Not a TLS socket's own: that one lets go of its state under a reader.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        pass  # closed already, or never connected


def _tunnel(connected: socket.socket, target: Target, proxy: Proxy, deadline: float) -> None:
    """Have the proxy connect.  Raises OSError when it does not."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    head = f"CONNECT {host}:{target.port} HTTP/1.1\r\nHost: {host}:{target.port}\r\n"
    if proxy.authorization is not None:
        head += f"Proxy-Authorization: {proxy.authorization}\r\n"
    connected.settimeout(_left(deadline))
    connected.sendall(f"{head}\r\n".encode("ascii"))
    answer = HTTPResponse(connected, method="CONNECT")
    try:
        answer.begin()
        if answer.status != 200:
            raise OSError(f"the proxy {proxy.host}:{proxy.port} answered {answer.status}")
    finally:
        answer.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
