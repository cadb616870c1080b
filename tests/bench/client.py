"""A client light enough not to be what is measured: fixed bytes out, head and length in."""

from __future__ import annotations

import gc
import json
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_TIMEOUT: Final = 120.0
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"


class Unexpected(Exception):
    """A server answered something else than the benchmark is about."""


class Connection:
    """One keep-alive connection to a unix socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_TIMEOUT)
        self._socket.connect(str(path))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """The body of the next answer.  Raises Unexpected unless it is a 2xx."""
        data = b""
        while (end := data.find(_END)) < 0:
            data += self._more()
        head = data[:end].lower()
        at = head.find(_LENGTH)
        length = int(head[at + len(_LENGTH) :].partition(b"\r\n")[0]) if at >= 0 else 0
        whole = end + len(_END) + length
        while len(data) < whole:
            data += self._more()
        if head[9:10] != b"2":
            raise Unexpected(data.decode("utf-8", "replace"))
        return data[end + len(_END) :]

    def exchange(self, request: bytes) -> float:
        """The seconds from the request's first byte to the answer's last."""
        begun = time.perf_counter()
        self.send(request)
        self.receive()
        return time.perf_counter() - begun

    def _more(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise Unexpected("the server closed the connection")
        return data


def request(method: str, target: str, length: int | None = None) -> bytes:
    """A request's head; a PUT without ``length`` has an empty body."""
    if length is None and method == "PUT":
        length = 0
    declared = "" if length is None else f"Content-Length: {length}\r\n"
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{declared}\r\n".encode()


def post(target: str, document: Any) -> bytes:
    """A POST of a JSON document."""
    body = json.dumps(document).encode()
    head = (
        f"POST {target} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def call(path: Path, method: str, target: str) -> Any:
    """One exchange on a connection of its own; the JSON that came back, if any."""
    with Connection(path) as connection:
        connection.send(request(method, target))
        body = connection.receive()
    return json.loads(body) if body.startswith(b"{") else None


def take_turns(
    connections: Sequence[Connection], line: bytes, more: Callable[[], bool]
) -> list[list[float]]:
    """Exchange the same request on each connection in turn while ``more()``: seconds of each."""
    series: list[list[float]] = [[] for _ in connections]
    with quiet():
        while more():
            for connection, seconds in zip(connections, series, strict=True):
                seconds.append(connection.exchange(line))
    return series


def flood(connections: Sequence[Connection], lines: Sequence[bytes]) -> float:
    """Send ``lines`` with as many under way at once as there are connections: the seconds of all.

    One thread waits for all of them, so that the clients do not wait for each other.
    """
    waiting = iter(lines)
    by_number = {connection.fileno(): connection for connection in connections}
    with select.epoll() as poll, quiet():
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        begun = time.perf_counter()
        under_way = 0
        for connection, line in zip(connections, waiting, strict=False):
            connection.send(line)
            under_way += 1
        while under_way:
            for number, _ in poll.poll():
                by_number[number].receive()
                under_way -= 1
                line = next(waiting, b"")
                if line:
                    by_number[number].send(line)
                    under_way += 1
        return time.perf_counter() - begun


def times(count: int) -> Callable[[], bool]:
    """A condition that holds ``count`` times."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection of this process in what is timed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
