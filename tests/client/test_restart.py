"""A daemon that goes away and comes back: what waits, what is told at once, what is sent again."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.client.conftest import CAPACITY
from tests.client.twins import TWINS, twin
from tests.polling import until
from tests.system.daemon import running
from weightd.client.effects import Request
from weightd.client.faults import NoAnswer, Unreachable
from weightd.client.putting import Sent
from weightd.client.records import Happening, Job
from weightd.errors import Blocked, Starting, TooMany

ANSWER = b'{"models": [], "next": null}'


@pytest.fixture(params=TWINS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Script:
    """A peer on a unix socket that answers each connection as it is told, and counts them."""

    def __init__(self, place: Path, answers: list[bytes]) -> None:
        self.place = place
        self.answers = answers
        self.requests: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen()

    def run(self) -> None:
        for answer in self.answers:
            peer, _ = self._listener.accept()
            with peer:
                request = peer.recv(65536)
                self.requests.append(request)
                peer.sendall(answer)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def scripted(place: Path, *answers: bytes) -> Iterator[Script]:
    script = Script(place, list(answers))
    thread = threading.Thread(target=script.run)
    thread.start()
    try:
        yield script
    finally:
        # The last answer was given, or the test has failed and the listener's end wakes it.
        if len(script.requests) < len(answers):
            script._listener.shutdown(socket.SHUT_RDWR)
        script.close()
        thread.join()


def answered(body: bytes = ANSWER, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


def refusal(code: bytes, retry_after: bytes | None, figures: bytes = b"") -> bytes:
    body = b'{"code": "%b", "retryable": true, "detail": "No."%b}' % (code, figures)
    more = b"" if retry_after is None else b"Retry-After: %b\r\n" % retry_after
    return answered(body, b"503 Service Unavailable", more)


def test_a_restart_goes_unnoticed(root: Path, kind: str) -> None:
    with (
        running(root, capacity=CAPACITY) as first,
        twin(kind, first.socket, patience=60) as client,
    ):
        client.put("kept", b"x")
        first.kill()
        # Asked while nobody is there, answered by the one that comes.
        with (
            ThreadPoolExecutor(1) as pool,
            running(root, capacity=CAPACITY, ready=False) as second,
        ):
            found = pool.submit(client.get, "kept").result()
            assert found is not None
            assert found.key == "kept"
            second.wait_ready()


def test_one_that_stays_away_is_told_after_a_while(root: Path, kind: str) -> None:
    with (
        running(root, capacity=CAPACITY) as daemon,
        twin(kind, daemon.socket, patience=0.5) as client,
    ):
        client.put("kept", b"x")
        daemon.kill()
        with pytest.raises(Unreachable):
            client.get("kept")


def test_one_that_takes_no_connections_is_told_after_a_while(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped does once its queue is full."""
    monkeypatch.setattr("weightd.client.blocking._PATIENT", struct.pack("@ll", 0, 100_000))
    place = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(str(place))
        listener.listen(0)
        waiting.connect(str(place))
        with twin(kind, place) as client, pytest.raises(Unreachable) as told:
            client.get("m")
    assert told.value.socket == str(place)


def test_a_put_begins_again_after_a_restart(root: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"weights")
    with (
        running(root, capacity=CAPACITY) as first,
        ExitStack() as stack,
        twin("blocking", first.socket, patience=60) as client,
    ):

        def restart(_: object) -> None:
            if first.process.poll() is None:
                first.kill()
                stack.enter_context(running(root, capacity=CAPACITY))

        model = client.put("m", tmp_path / "weights", progress=restart)
        assert Path(model.path, "weights").read_bytes() == b"weights"


def test_a_put_begins_again_when_the_daemon_dies_as_it_publishes(
    root: Path, tmp_path: Path
) -> None:
    """The source is still here, so it is written once more."""
    (tmp_path / "weights").write_bytes(b"weights")
    with (
        running(root, capacity=CAPACITY, failpoint="ingest.sealed") as first,
        ExitStack() as stack,
        twin("blocking", first.socket, patience=60) as client,
        ThreadPoolExecutor(1) as beside,
    ):
        told: list[Sent] = []
        putting = beside.submit(client.put, "m", tmp_path / "weights", progress=told.append)
        first.ended()
        stack.enter_context(running(root, capacity=CAPACITY))
        model = putting.result()
        assert Path(model.path, "weights").read_bytes() == b"weights"
        assert [sent.bytes for sent in told] == [7, 7]


@pytest.mark.parametrize("kind", ["awaiting"])
def test_events_go_on_across_a_restart(root: Path, kind: str) -> None:
    with (
        running(root, capacity=CAPACITY) as first,
        twin(kind, first.socket, patience=60) as client,
    ):
        events = client.events(after=0)
        client.put("before", b"x")
        assert next_about(events, "before")
        first.kill()
        with running(root, capacity=CAPACITY) as second:
            second.client.call("PUT", "/v1/models/after", b"x")
            assert next_about(events, "after")
            events.close()  # type: ignore[attr-defined]


def next_about(events: Iterator[Happening], key: str) -> Happening:
    """The next event about a key; the ones before it are of the daemon itself."""
    return next(event for event in events if event.data.get("key") == key)


@pytest.mark.parametrize("kind", ["blocking"])
def test_a_fetch_goes_on_across_a_restart(root: Path, kind: str) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=bytes(2_000_000))
        origin.flowing.clear()
        with (
            running(root, capacity=CAPACITY) as first,
            twin(kind, first.socket, patience=60) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            told: list[Job] = []
            fetching = pool.submit(
                client.fetch, "m", source, holder="replica:1", ttl=60, progress=told.append
            )
            until(lambda: any(job.state == "downloading" for job in told))
            first.kill()
            with running(root, capacity=CAPACITY):
                origin.flowing.set()
                model = fetching.result()
            assert (model.pins, model.bytes) == (1, 2_000_000)


@pytest.mark.parametrize("code", [b"starting", b"draining"])
def test_what_passes_is_asked_again_when_it_says(tmp_path: Path, kind: str, code: bytes) -> None:
    place = tmp_path / "s"
    with (
        scripted(place, refusal(code, b"0"), refusal(code, b"0"), answered()) as script,
        twin(kind, place) as client,
    ):
        assert client.models() == []
    assert len(script.requests) == 3


def test_what_takes_longer_than_the_patience_is_told_at_once(tmp_path: Path, kind: str) -> None:
    with (
        scripted(tmp_path / "s", refusal(b"starting", b"11")) as script,
        twin(kind, script.place) as client,
        pytest.raises(Starting),
    ):
        client.models()
    assert len(script.requests) == 1


def test_what_does_not_say_when_is_not_asked_again(tmp_path: Path, kind: str) -> None:
    figures = b', "what": "x", "limit": 1'
    with (
        scripted(tmp_path / "s", refusal(b"too-many", None, figures)) as script,
        twin(kind, script.place) as client,
        pytest.raises(TooMany),
    ):
        client.models()
    assert len(script.requests) == 1


def test_blocked_is_for_the_caller_to_decide(tmp_path: Path, kind: str) -> None:
    figures = (
        b', "reason": "pins", "bytes": 1, "free": 0, "evictable": 0, "pinned": 1, "arriving": 0'
        b', "holders": []'
    )
    with (
        scripted(tmp_path / "s", refusal(b"blocked", b"0", figures)) as script,
        twin(kind, script.place) as client,
        pytest.raises(Blocked),
    ):
        client.put("m", b"x")
    assert len(script.requests) == 1
    assert b"Expect: 100-continue" in script.requests[0]
    assert script.requests[0].endswith(b"\r\n\r\n"), "the body was not sent"


def test_a_connection_that_was_closed_while_idle_costs_nothing(tmp_path: Path, kind: str) -> None:
    # Each answer says that the connection stays, and is its last.
    with (
        scripted(tmp_path / "s", answered(), answered()) as script,
        twin(kind, script.place, patience=0) as client,
    ):
        assert client.models() == client.models() == []
    assert len(script.requests) == 2


def test_an_answer_that_breaks_off_is_told(tmp_path: Path, kind: str) -> None:
    with (
        scripted(tmp_path / "s", answered()[:-1]) as script,
        twin(kind, script.place) as client,
        pytest.raises(Unreachable, match="closed before"),
    ):
        client.models()


def test_one_that_says_nothing_is_not_waited_for_without_end(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    quick = 0.1
    asked = Request("GET", "/v1/status", patience=quick)
    monkeypatch.setattr("weightd.client.calls.status", lambda: asked)
    with listener, twin(kind, tmp_path / "s") as client, pytest.raises(NoAnswer) as silent:
        client.status()
    assert isinstance(silent.value, TimeoutError)
    assert silent.value.seconds == quick
