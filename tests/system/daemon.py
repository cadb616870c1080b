"""`weightd serve` as a process of its own, and what a test says to it.

Readiness is an event: the line the daemon prints.  A daemon is ended by its own
pid and is always reaped; one that dies unasked fails the test with its log.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil

from tests.frozen import frozen
from tests.system.nursery import HERE, WEIGHTD, Child, bare_environment, nursery
from weightd.failpoints import VARIABLE

READY_WITHIN: Final = 60.0
"""Seconds; a start takes about one, most of it imports, and many run at once here."""

END_WITHIN: Final = 30.0
_ANSWER_WITHIN: Final = 60.0

Process: TypeAlias = subprocess.Popen[bytes] | Child

GONE: Final = (OSError, http.client.HTTPException)
"""What a call raises when the daemon died under it: nobody knows what became of the call."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("weightd", timeout=_ANSWER_WITHIN)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))


@dataclass(frozen=True, slots=True)
class Client:
    """Calls over the unix socket, each on a connection of its own; any thread may make them."""

    socket: Path

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Raises `GONE` when no whole answer came."""
        with closing(_Connection(self.socket)) as connection:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers.items()), answer.read())

    def get(self, path: str) -> Any:
        """The JSON of an answer that must be a 200."""
        answer = self.call("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.json()

    def status(self) -> Any:
        return self.get("/v1/status")

    def admission(self, size: int, key: str | None = None) -> Any:
        """The dry run of an arrival."""
        asked = json.dumps({"bytes": size, "key": key}).encode()
        answer = self.call("POST", "/v1/admission", asked, {"Content-Type": "application/json"})
        assert answer.status == 200, answer
        return answer.json()


@dataclass(slots=True)
class Daemon:
    """A running daemon.  ``log`` is the file that its stderr goes to."""

    root: Path
    socket: Path
    log: Path
    process: Process
    started: float
    ready_after: float = 0.0

    @property
    def client(self) -> Client:
        return Client(self.socket)

    def wait_ready(self, within: float = READY_WITHIN) -> None:
        """Wait for the ready line; a daemon that ends instead fails the test."""
        assert self.process.stdout is not None
        said = b""
        while b" is ready\n" not in said:
            left = self.started + within - time.monotonic()
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, left))
            assert readable, f"not ready within {within} s:\n{self.said()}"
            more = os.read(self.process.stdout.fileno(), 4096)
            assert more, f"ended before it was ready ({self.process.wait()}):\n{self.said()}"
            said += more
        self.ready_after = time.monotonic() - self.started

    def wait_listening(self) -> float:
        """Wait until it answers at all, which precedes readiness; the seconds since its start."""
        while True:
            try:
                self.client.call("GET", "/healthz")
            except OSError:
                assert self.process.poll() is None, self.said()
                assert time.monotonic() < self.started + READY_WITHIN, self.said()
                time.sleep(0.005)  # nothing announces it
            else:
                return time.monotonic() - self.started

    def kill(self) -> None:
        """SIGKILL, now."""
        self.process.kill()
        self.process.wait(END_WITHIN)

    def ended(self, within: float = END_WITHIN) -> int | None:
        """The exit status, negative for a signal; None when it is still there after ``within``."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int:
        """Ask for a graceful end by SIGTERM, and wait for it; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.ended()
        assert status is not None, f"still there {END_WITHIN} s after SIGTERM:\n{self.said()}"
        return status

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every thread of it for a look at the disk at one instant."""
        with frozen(self.process):
            yield

    def port(self) -> int:
        """That of its one TCP listener; by itself it has none."""
        connections = psutil.Process(self.process.pid).net_connections("tcp")
        (port,) = {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
        return int(port)

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]


def spawn(
    root: Path,
    *,
    capacity: int | None,
    failpoint: str | None = None,
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
) -> Daemon:
    """Start a daemon; its socket and its log stand beside ``root``.

    A ``capacity`` of None is for what a file in ``options`` says; ``environ`` is told
    beside `bare_environment`.
    ``prefix`` is a command that runs the daemon, such as strace's; without one it is
    forked with everything imported (`tests.system.nursery`).
    """
    place = root.parent / "weightd.sock"
    arguments = [
        *("serve", "--root", str(root), "--socket", str(place)),
        *("--min-free", "0", "--listen", "none"),
        *(() if capacity is None else ("--capacity", str(capacity))),
        *options,
    ]
    told = bare_environment() | dict(environ or {})
    if failpoint is not None:
        told[VARIABLE] = failpoint
    log = root.parent / "weightd.log"
    process: Process
    with log.open("ab") as sink:
        if not prefix:
            process = nursery().spawn(WEIGHTD, arguments, told, sink.fileno())
        else:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "weightd", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=told,
                cwd=HERE,
            )
    return Daemon(root, place, log, process, started=time.monotonic())


@contextmanager
def running(
    root: Path,
    *,
    capacity: int | None,
    failpoint: str | None = None,
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
    ready: bool = True,
) -> Iterator[Daemon]:
    """A daemon, ready, until the context is left; then it is killed if it is still there."""
    daemon = spawn(
        root,
        capacity=capacity,
        failpoint=failpoint,
        environ=environ,
        options=options,
        prefix=prefix,
    )
    try:
        if ready:
            daemon.wait_ready()
        yield daemon
    finally:
        daemon.kill()
        assert daemon.process.stdout is not None
        daemon.process.stdout.close()
