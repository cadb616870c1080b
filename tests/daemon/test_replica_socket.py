"""The daemon's socket for replicas, and what ten thousand connections do to it."""

from __future__ import annotations

import resource
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.test_start import refused
from tests.system.daemon import Client, Daemon, running

CAPACITY = 10_000_000
NOBODY = 65534
ATTEMPTS = 10_000
READY = b"GET /v1/status HTTP/1.1\r\nHost: d\r\n\r\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """Where every user can reach a socket."""
    with tempfile.TemporaryDirectory(prefix="weightd-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory) / "replica.sock"


def test_it_is_open_to_everybody_and_goes_with_the_daemon(root: Path, place: Path) -> None:
    options = ("--replica-socket", str(place))
    with running(root, capacity=CAPACITY, options=options) as daemon:
        assert stat.S_IMODE(place.stat().st_mode) == 0o666
        assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201
        replica = Client(place)
        assert replica.status()["models"] == 1
        answer = replica.call("PUT", "/v1/models/n", b"weights")
        assert answer.status == 403
        assert answer.json()["door"] == f"the admin socket ({daemon.socket})"
        assert daemon.stop() == 0
        assert not place.exists()


def as_nobody(place: Path, method: str) -> int:
    """Pin or unpin as another user; the status."""
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method]
    ended = subprocess.run(
        [*command, "--unix-socket", str(place), "http://d/v1/pins/h/m"],
        capture_output=True,
        check=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    return int(ended.stdout)


@pytest.mark.needs("root", "curl")
def test_whose_a_pin_is_outlives_the_daemon(root: Path, place: Path) -> None:
    options = ("--replica-socket", str(place))
    with running(root, capacity=CAPACITY, options=options) as daemon:
        assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201
        assert as_nobody(place, "PUT") == 201
    with running(root, capacity=CAPACITY, options=options) as daemon:
        assert Client(place).call("DELETE", "/v1/pins/h/m").status == 403
        assert as_nobody(place, "DELETE") == 204


def test_it_has_a_path_of_its_own(root: Path, place: Path) -> None:
    code, (line,) = refused(root, "--socket", str(place), "--replica-socket", str(place))
    assert code == 2
    assert line.startswith("weightd: replica_socket (--replica-socket): ")
    assert line.endswith(f"{place} is the path of socket as well; give each its own")
    assert not place.exists()


def memory(daemon: Daemon) -> int:
    """The most bytes that it ever had resident."""
    for line in Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells no VmHWM")


@pytest.mark.needs("prlimit")
def test_ten_thousand_connections(root: Path, place: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ATTEMPTS + 200:
        pytest.skip(f"cannot be had: {ATTEMPTS} descriptors, the hard limit is {hard}")
    program = [sys.executable, "-c", STORM, str(place), str(ATTEMPTS)]
    options = ("--replica-socket", str(place))
    prefix = ("prlimit", "--nofile=1024:1024")
    with (
        running(root, capacity=CAPACITY, options=options, prefix=prefix) as daemon,
        ExitStack() as stack,
    ):
        before = memory(daemon)
        kept = stack.enter_context(socket.socket(socket.AF_UNIX))
        kept.settimeout(60)
        kept.connect(str(place))
        storm = stack.enter_context(
            subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert storm.stdout is not None
        assert storm.stdout.readline() == b"connected\n"
        # All of them are held open now.
        assert daemon.client.status()["state"] == "ready"
        kept.sendall(READY)
        assert kept.recv(12) == b"HTTP/1.1 200"
        with socket.socket(socket.AF_UNIX) as late:
            late.settimeout(60)
            late.connect(str(place))
            assert late.recv(12) == b"HTTP/1.1 429"
        assert memory(daemon) - before < 64 << 20
        storm.communicate()
        assert storm.returncode == 0
        assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201


STORM = """
import resource, socket, sys
place, attempts = sys.argv[1], int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for _ in range(attempts):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(place)
    held.append(peer)
print("connected", flush=True)
sys.stdin.read()
"""
