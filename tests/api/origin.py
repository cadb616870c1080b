"""A small real HTTP origin on a free port, which counts what it is asked and can hold an answer."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast

PATIENCE: Final = 30.0

_RANGE: Final = re.compile(r"bytes=([0-9]+)-([0-9]*)")


@dataclass
class Origin:
    """What it serves, by path, and what it does instead.

    ``refusals`` are a status and headers by path; ``asked`` is every request's
    method and path, ``shown`` every credential that came along; no body goes
    out while ``flowing`` is not set.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    refusals: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    flowing: threading.Event = field(default_factory=threading.Event)

    def listing(self, name: str, **files: bytes) -> str:
        """Serve files and a listing of them; the source to fetch them by."""
        told = [{"path": path, "bytes": len(body)} for path, body in files.items()]
        self.files |= {f"/{path}": body for path, body in files.items()}
        self.files[f"/{name}.json"] = json.dumps({"files": told}).encode()
        return f"{self.url}/{name}.json"

    def file(self, name: str, body: bytes) -> str:
        """Serve one file; the source to fetch it by."""
        self.files[f"/{name}"] = body
        return f"{self.url}/{name}"

    def bodies(self, name: str) -> int:
        """How often the bytes of a file were asked for."""
        return self.asked.count(("GET", f"/{name}"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, with_body: bool) -> None:
        origin = cast(Any, self.server).origin
        path = self.path.partition("?")[0]
        origin.asked.append((self.command, path))
        origin.shown += self.headers.get_all("Authorization", [])
        status, headers = origin.refusals.get(path, (200, {}))
        body = origin.files.get(path)
        if status == 200 and body is None:
            status = 404
        if status != 200 or body is None:
            self._head(status, headers | {"Content-Length": "0"})
            return
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        headers = {"ETag": f'"{hash(body) & 0xFFFFFFFF:x}"', "Accept-Ranges": "bytes"}
        if asked:
            start, stop = int(asked[1]), int(asked[2] or len(body) - 1) + 1
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            body, status = body[start:stop], 206
        self._head(status, headers | {"Content-Length": str(len(body))})
        if with_body:
            if not path.endswith(".json"):
                assert origin.flowing.wait(PATIENCE), "nobody let the body flow"
            self._send(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, body: bytes) -> None:
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # a fetch that was ended hung up


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    origin: Origin

    def __init__(self) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections on which nothing is asked any more."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it ended by itself


@contextmanager
def http_origin() -> Iterator[Origin]:
    """Serve until the context is left; bodies flow unless a test holds them."""
    server = _Server()
    origin = Origin(f"http://127.0.0.1:{server.server_address[1]}")
    origin.flowing.set()
    server.origin = origin
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), name="origin")
    serving.start()
    try:
        yield origin
    finally:
        origin.flowing.set()
        server.shutdown()
        serving.join(PATIENCE)
        server.hang_up()
        server.server_close()
