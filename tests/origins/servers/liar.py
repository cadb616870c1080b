"""A server that says what a test tells it to, byte by byte, and may never finish."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

_WITHIN: Final = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """What came in."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class Liar:
    """``answer`` writes to the connection what it likes; when it returns, that is closed.

    It may return True to be asked again on the same connection.
    """

    port: int
    answer: Callable[[Request, socket.socket], bool | None] = lambda request, peer: None
    asked: list[Request] = field(default_factory=list)
    peers: list[socket.socket] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    """Set when the test is, for whoever stalls until then."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stall(self) -> None:
        """Say nothing more until the test is over."""
        self.over.wait(_WITHIN)


def head(status: int, headers: Mapping[str, object] | None = None, length: int | None = 0) -> bytes:
    """An answer's head; ``length`` is what it says of the body, true or not."""
    told = {} if length is None else {"Content-Length": length}
    lines = [f"{name}: {value}" for name, value in {**told, **(headers or {})}.items()]
    return "\r\n".join([f"HTTP/1.1 {status} Told", *lines, "", ""]).encode()


@contextmanager
def running_liar() -> Iterator[Liar]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        liar = Liar(listener.getsockname()[1])
        threads: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(listener, liar, threads))
        accepting.start()
        try:
            yield liar
        finally:
            liar.over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for peer in liar.peers:
                _hang_up(peer)
            for thread in threads:
                thread.join()


def _accept(listener: socket.socket, liar: Liar, threads: list[threading.Thread]) -> None:
    while not liar.over.is_set():
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        liar.peers.append(peer)
        threads.append(threading.Thread(target=_serve, args=(peer, liar)))
        threads[-1].start()


def _serve(peer: socket.socket, liar: Liar) -> None:
    with peer:
        peer.settimeout(_WITHIN)
        try:
            while (request := _request(peer)) is not None:
                liar.asked.append(request)
                if not liar.answer(request, peer):
                    return
        except OSError:
            return  # whoever asked has hung up


def _hang_up(peer: socket.socket) -> None:
    try:
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it ended by itself


def _request(peer: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = peer.recv(65536)
        if not more:
            return None
        data += more
    first, *lines = data.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return Request(method, path, headers)
