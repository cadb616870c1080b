"""How the daemon ends: readiness first, then arrivals, within a bound, with everything kept."""

from __future__ import annotations

import http.client
import json
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.daemon.notified import Manager, manager
from tests.polling import until
from tests.system.daemon import Daemon, running

CAPACITY = 4096 * 2500


@contextmanager
def half_sent(daemon: Daemon, key: str) -> Iterator[socket.socket]:
    """A put of 1000 bytes of which 500 are sent, and which the daemon has taken up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(60)
        peer.connect(str(daemon.socket))
        head = f"PUT /v1/models/{key} HTTP/1.1\r\nHost: w\r\nContent-Length: 1000\r\n"
        peer.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 100")
        peer.sendall(b"w" * 500)
        yield peer


def answer(peer: socket.socket) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(peer)
    response.begin()
    return response


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Manager]:
    with manager(tmp_path) as watching:
        yield watching


def test_ready_and_stopping_are_told_to_the_service_manager(root: Path, watched: Manager) -> None:
    with running(root, capacity=CAPACITY, environ=watched.environ) as daemon:
        watched.hears("READY=1")
        assert daemon.stop() == 0
        watched.hears("STOPPING=1")
    assert not daemon.socket.exists()


def test_service_manager_that_is_gone_changes_nothing(root: Path, tmp_path: Path) -> None:
    gone = {"NOTIFY_SOCKET": str(tmp_path / "gone")}
    with running(root, capacity=CAPACITY, environ=gone) as daemon:
        assert daemon.stop() == 0


def test_what_is_under_way_finishes_and_nothing_new_arrives(root: Path, watched: Manager) -> None:
    with running(root, capacity=CAPACITY, environ=watched.environ) as daemon:
        watched.hears("READY=1")
        with half_sent(daemon, "slow") as peer:
            daemon.process.send_signal(signal.SIGTERM)
            watched.hears("STOPPING=1")
            ready = daemon.client.call("GET", "/readyz")
            assert (ready.status, ready.json()["code"]) == (503, "draining")
            refused = daemon.client.call("PUT", "/v1/models/new", b"weights")
            assert (refused.status, refused.json()["code"]) == (503, "draining")
            assert "Retry-After" in refused.headers or "retry-after" in refused.headers
            peer.sendall(b"w" * 500)
            assert answer(peer).status == 201
        assert daemon.ended() == 0
    with running(root, capacity=CAPACITY) as again:
        assert [one["key"] for one in again.client.get("/v1/models")["models"]] == ["slow"]


def test_the_drain_has_a_bound(root: Path, watched: Manager) -> None:
    options = ("--drain-timeout", "0")
    with running(root, capacity=CAPACITY, environ=watched.environ, options=options) as daemon:
        with half_sent(daemon, "stalled"):
            assert daemon.stop() == 0
        assert "cut off" in daemon.said()
        assert "Traceback" not in daemon.said()
    assert not list((root / "models").iterdir())
    with running(root, capacity=CAPACITY) as again:
        assert again.client.status()["used_bytes"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_at_once(root: Path, watched: Manager, number: signal.Signals) -> None:
    with running(root, capacity=CAPACITY, environ=watched.environ) as daemon:
        watched.hears("READY=1")
        with half_sent(daemon, "stalled"):
            daemon.process.send_signal(number)
            watched.hears("STOPPING=1")
            daemon.process.send_signal(number)
            assert daemon.ended() == -number
    with running(root, capacity=CAPACITY) as again:
        assert again.client.status()["models"] == 0


def test_hangup_and_lease_break_signals_do_not_end_it(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        daemon.process.send_signal(signal.SIGIO)
        # Stopped before it has read them, it would have nothing to say.
        until(lambda: "SIGHUP: no setting has changed" in daemon.said(), daemon.said)
        assert daemon.client.status()["state"] == "ready"
        assert daemon.stop() == 0


def test_event_streams_end_with_a_last_line(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        connection = http.client.HTTPConnection("w", timeout=60)
        with closing(connection):
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(60)
            connection.sock.connect(str(daemon.socket))
            connection.request("GET", "/v1/events")
            stream = connection.getresponse()
            assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201
            assert json.loads(stream.readline())["type"] == "published"
            daemon.process.send_signal(signal.SIGTERM)
            assert json.loads(stream.read().splitlines()[-1])["type"] == "end"
        assert daemon.ended() == 0


def test_pins_and_order_of_use_survive(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        for key in ("a", "b", "c"):
            assert daemon.client.call("PUT", f"/v1/models/{key}", b"weights").status == 201
        assert daemon.client.call("PUT", "/v1/pins/replica/b").status == 201
        daemon.client.get("/v1/models/a")
        assert daemon.stop() == 0
    with running(root, capacity=CAPACITY) as again:
        assert [one["holder"] for one in again.client.get("/v1/pins")["pins"]] == ["replica"]
        verdict = again.client.admission(CAPACITY - 4096)
        assert [one["key"] for one in verdict["victims"]] == ["c", "a"]


def test_who_still_sends_what_was_refused_is_cut_off_without_a_word(
    root: Path, watched: Manager
) -> None:
    with (
        running(root, capacity=CAPACITY, environ=watched.environ) as daemon,
        half_sent(daemon, "m") as peer,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as late,
    ):
        watched.hears("READY=1")
        late.connect(str(daemon.socket))
        late.settimeout(60)
        daemon.process.send_signal(signal.SIGTERM)
        watched.hears("STOPPING=1")
        sending = threading.Thread(target=trickle, args=(late, CAPACITY))
        sending.start()
        try:
            assert answer(late).status == 503
            # What is under way is over, and only the refused body is left.
            peer.sendall(b"w" * 500)
            assert answer(peer).status == 201
            assert daemon.process.wait(60) == 0
        finally:
            sending.join(60)
        assert "Traceback" not in daemon.said()


def trickle(peer: socket.socket, length: int) -> None:
    """Begin a put that is too large, and send of it now and then, until the other end has gone."""
    peer.sendall(
        f"PUT /v1/models/m HTTP/1.1\r\nHost: w\r\nContent-Length: {length}\r\n\r\n".encode()
    )
    try:
        while True:
            peer.sendall(b"w")
            select.select([], [], [], 0.1)
    except (BrokenPipeError, ConnectionResetError):
        return
