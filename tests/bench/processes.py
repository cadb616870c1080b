"""The processes of a run: the daemon, its peers, a sender; each ended by whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.client import Connection, Unexpected, call, request
from weightd.store import layout

HOME: Final = Path(__file__).resolve().parents[2]
"""Where the packages are that are measured: this clone."""

_START_WITHIN: Final = 120.0
_END_WITHIN: Final = 60.0
_POLL: Final = 0.002
_SETTLE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Server:
    """A process that answers on ``socket``.

    ``listening`` and ``ready`` are the seconds from its start until it answered
    at all, and until it answered what it is for.
    """

    process: subprocess.Popen[bytes]
    socket: Path
    listening: float
    ready: float

    def resident(self) -> int:
        """Its resident memory in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        """The seconds of processors that it has taken, all its threads together."""
        # What comes before may hold blanks: a process says what it is called.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most_resident(self) -> int:
        """The most that was resident of it since it started, or since that was forgotten."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise Unexpected("the kernel tells no VmHWM")

    def forget_most_resident(self) -> None:
        """Have the kernel begin that figure anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@contextmanager
def daemon(
    root: Path, socket: Path, capacity: int, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A daemon on ``root``, ready when the block begins; ``environment`` is added to this one."""
    options = {
        "--root": root,
        "--socket": socket,
        "--capacity": capacity,
        "--min-free": 0,
        "--listen": "none",
        "--log-level": "warning",
    }
    given = [str(part) for option in options.items() for part in option]
    command = [sys.executable, "-m", "weightd", "serve", *given]
    with server(command, socket, "/readyz", environment) as running:
        yield running


@contextmanager
def peer(kind: str, socket: Path, body: Path) -> Iterator[Server]:
    """A peer of the same stack (see `tests.bench.peer`) that answers the bytes of ``body``."""
    command = [sys.executable, "-m", "tests.bench.peer", kind, str(socket), str(body)]
    with server(command, socket, "/v1/models/ready") as running:
        yield running


@contextmanager
def sender(socket: Path, key: str, size: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that puts ``size`` bytes under ``key``."""
    with child("tests.bench.sender", str(socket), key, str(size)) as process:
        yield process


@contextmanager
def server(
    command: list[str], socket: Path, probe: str, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A command that listens on ``socket``, once it answers a GET of ``probe`` by a 2xx."""
    begun = time.perf_counter()
    listening = None
    with _process(command, environment) as process:
        while not (ready := _answers(socket, probe)):
            passed = time.perf_counter() - begun
            if listening is None and ready is not None:
                listening = passed
            if process.poll() is not None or passed > _START_WITHIN:
                raise Unexpected(f"{' '.join(command[:4])} did not start")
            time.sleep(_POLL)
        passed = time.perf_counter() - begun
        yield Server(process, socket, passed if listening is None else listening, passed)


def be_rid_of(daemon: Server, root: Path, key: str) -> None:
    """Delete a model, and wait until nothing of it is on disk."""
    call(daemon.socket, "DELETE", f"/v1/models/{key}")
    while os.listdir(root / layout.DOOMED):
        time.sleep(_SETTLE)


def _answers(socket: Path, probe: str) -> bool | None:
    """None while nobody listens, False for an answer that it is not ready."""
    try:
        with Connection(socket) as connection:
            connection.exchange(request("GET", probe))
    except (FileNotFoundError, ConnectionError):
        return None
    except Unexpected:
        return False
    return True


def clean_environment() -> dict[str, str]:
    """This process's, less what is said to weightd, or keeps modules from being found compiled."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WEIGHTD_") and name != "PYTHONDONTWRITEBYTECODE"
    }


@contextmanager
def child(
    *module: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module with its arguments until the end of the block."""
    with _process([sys.executable, "-m", *module], environment) as process:
        yield process


@contextmanager
def _process(
    command: list[str], environment: Mapping[str, str] | None
) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own: Ctrl-C is for the benchmark, which then ends it."""
    with subprocess.Popen(
        command,
        cwd=HOME,
        env=clean_environment() | dict(environment or {}),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_END_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
