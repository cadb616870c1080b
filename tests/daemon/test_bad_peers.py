"""Peers of every bad kind at a real daemon: each its documented answer, others unharmed.

What each is answered in all its forms is tested in ``tests/api``; here it is one
process with its own limits and clocks, and how much memory they cost it.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon.test_replica_socket import memory
from tests.polling import WITHIN, until_nothing
from tests.system.daemon import Client, Daemon, running

CAPACITY: Final = 100_000_000
MOST_MEMORY: Final = 64 << 20
PEERS: Final = 50
PINS_PER_USER: Final = 1024
STEP: Final = 1.0
"""Seconds between two bytes of a head."""

SLOW_HEAD: Final = b"GET /v1/status HTTP/1.1\r\nHost: d\r\nX-Long: " + b"x" * 1000


@pytest.fixture
def daemon(root: Path) -> Iterator[Daemon]:
    replica = root.parent / "replica.sock"
    options = ("--replica-socket", str(replica), "--idle-timeout", "1s")
    with running(root, capacity=CAPACITY, options=(*options, "--listen", "127.0.0.1:0")) as daemon:
        assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201
        before = memory(daemon)
        yield daemon
        assert daemon.client.get("/v1/models/m")["key"] == "m"
        assert daemon.client.status()["reserved_bytes"] == 0
        assert memory(daemon) - before < MOST_MEMORY
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()


def test_heads_that_come_one_byte_a_second(daemon: Daemon) -> None:
    with ExitStack() as stack:
        peers = [connected(stack, daemon.socket) for _ in range(PEERS)]
        assert trickled(daemon, peers) == {(408, "stalled"): PEERS}


def trickled(daemon: Daemon, peers: Sequence[socket.socket]) -> Counter[tuple[int, str]]:
    """Send each of them a byte of a head now and then, until it is answered."""
    told: Counter[tuple[int, str]] = Counter()
    with selectors.DefaultSelector() as waiting:
        for peer in peers:
            waiting.register(peer, selectors.EVENT_READ)
        for byte in SLOW_HEAD:
            for key, _ in waiting.select(STEP):  # the slowness that is tested
                waiting.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                told[answer_of(key.fileobj)] += 1
            if not waiting.get_map():
                return told
            for key in waiting.get_map().values():
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.send(bytes([byte]))
            # Nobody else waits for them.
            assert daemon.client.get("/v1/models/m")["key"] == "m"
    raise AssertionError(f"{len(peers)} heads of {len(SLOW_HEAD)} bytes were waited for: {told}")


@pytest.mark.parametrize(
    "head",
    [
        "PUT /v1/models/stops HTTP/1.1\r\nHost: d\r\nContent-Length: 1000000\r\n\r\n",
        "PUT /v1/models/stops HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n",
        "POST /v1/admission HTTP/1.1\r\nHost: d\r\nContent-Length: 5000\r\n\r\n",
    ],
)
def test_bodies_that_stop(daemon: Daemon, head: str) -> None:
    with ExitStack() as stack:
        peers = [connected(stack, daemon.socket) for _ in range(20)]
        for peer in peers:
            peer.sendall(head.encode() + b"{")
        assert Counter(map(answer_of, peers)) == {(408, "stalled"): 20}
    wait_idle(daemon)


def test_heads_beyond_bounds(daemon: Daemon) -> None:
    with ExitStack() as stack:
        peers = [connected(stack, daemon.socket) for _ in range(PEERS)]
        for peer in peers:
            send_what_is_taken(peer, b"GET / HTTP/1.1\r\nHost: d\r\nX: " + b"x" * 2_000_000)
        assert Counter(map(answer_of, peers)) == {(400, "invalid-request"): PEERS}


def test_writes_at_the_read_only_door(daemon: Daemon) -> None:
    port = daemon.port()
    calls = (
        *(("PUT", "/v1/models/n"), ("DELETE", "/v1/models/m"), ("PUT", "/v1/pins/h/m")),
        *(("DELETE", "/v1/pins/h/m"), ("POST", "/v1/pins/accept-loss"), ("POST", "/v1/admission")),
    )
    for method, path in calls:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)) as peer:
            peer.request(method, path, body=b"x" * 100_000)
            answer = peer.getresponse()
            document = json.loads(answer.read())
            assert (answer.status, document["code"]) == (403, "forbidden"), (method, path)
            assert str(daemon.socket) in document["door"]
    status = daemon.client.status()
    assert (status["models"], status["pins"]) == (1, 0)


def test_a_storm_of_pins_by_one_user(daemon: Daemon) -> None:
    replica = daemon.socket.with_name("replica.sock")
    told: Counter[tuple[int, str]] = Counter()
    with ExitStack() as stack:
        peer = stack.enter_context(closing(http.client.HTTPConnection("d")))
        peer.sock = connected(stack, replica)
        for number in range(PINS_PER_USER + 100):
            peer.request("PUT", f"/v1/pins/h{number}/m")
            answer = peer.getresponse()
            told[answer.status, json.loads(answer.read()).get("code", "")] += 1
    assert told == {(201, ""): PINS_PER_USER, (429, "too-many"): 100}
    assert daemon.client.call("PUT", "/v1/pins/another/m").status == 201
    # One who is at the limit renews what he has, and lets it go.
    assert Client(replica).call("PUT", "/v1/pins/h0/m").status == 200
    assert Client(replica).call("DELETE", "/v1/pins/h0/m").status == 204
    assert Client(replica).call("PUT", "/v1/pins/more/m").status == 201
    assert daemon.client.status()["pins"] == PINS_PER_USER + 1


def connected(stack: ExitStack, place: Path) -> socket.socket:
    peer = stack.enter_context(socket.socket(socket.AF_UNIX))
    peer.settimeout(WITHIN)
    peer.connect(str(place))
    return peer


def send_what_is_taken(peer: socket.socket, data: bytes) -> None:
    """Send until the other end has had enough, which may be before the end."""
    try:
        peer.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return


def answer_of(peer: socket.socket) -> tuple[int, str]:
    """The status and the code that a peer is told."""
    with closing(http.client.HTTPResponse(peer)) as answer:
        answer.begin()
        document: Any = json.loads(answer.read())
        return answer.status, document["code"]


def _busy(status: Any) -> dict[str, int]:
    return {name: status[name] for name in ("arrivals", "doomed_bytes") if status[name]}


def wait_idle(daemon: Daemon) -> None:
    """Wait until what was refused is put away."""
    until_nothing(lambda: _busy(daemon.client.status()))
    assert not list((daemon.root / "incoming").iterdir())
