"""Every wait on the way to an origin has a bound, and ends when the origin is closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from weightd.errors import OriginFailed, OriginTimeout
from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference
from weightd.origins.wire import Found

ENDLESS = Patience(connect=3600.0, progress=3600.0)
WITHIN = 20.0


def opened(url: str, patience: Patience = ENDLESS) -> Origin:
    return open_origin(parse_reference(url), trust=Trust(), patience=patience)


@contextmanager
def listing(origin: Origin) -> Iterator[Callable[[], OriginFailed]]:
    """Somebody who lists in another thread; what is yielded waits for the failure it ends with."""
    failures: list[OriginFailed] = []

    def wait() -> None:
        with pytest.raises(OriginFailed) as raised:
            origin.list()
        failures.append(raised.value)

    def failure() -> OriginFailed:
        lister.join(WITHIN)
        assert not lister.is_alive()
        return failures[0]

    lister = threading.Thread(target=wait)
    lister.start()
    try:
        yield failure
    finally:
        origin.close()
        lister.join(WITHIN)


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port that takes no more connections, and refuses none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = []
        try:
            for _ in range(4):
                one = socket.socket()
                waiting.append(one)
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            yield port
        finally:
            for one in waiting:
                one.close()


def test_who_waits_for_a_connection_is_woken(
    full_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = threading.Event()
    begin = socket.socket.connect_ex

    def told(self: socket.socket, address: tuple[str, int]) -> int:
        number = begin(self, address)
        connecting.set()
        return number

    monkeypatch.setattr(socket.socket, "connect_ex", told)
    origin = opened(f"http://127.0.0.1:{full_port}/m")
    with listing(origin) as failure:
        assert connecting.wait(WITHIN)
        origin.close()
        assert failure().retryable


def test_a_connection_that_nobody_takes_has_a_bound(full_port: int) -> None:
    with pytest.raises(OriginTimeout):
        opened(f"http://127.0.0.1:{full_port}/m", Patience(connect=0.2)).list()


def test_who_waits_for_a_handshake_is_woken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = opened(f"https://127.0.0.1:{listener.getsockname()[1]}/m")
        with listing(origin) as failure:
            peer, _ = listener.accept()
            with peer:
                # It has begun, and nobody answers.
                assert peer.recv(1, socket.MSG_PEEK)
                origin.close()
                assert failure().retryable


class Resolver:
    """A resolver that is asked and does not answer."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.over = threading.Event()

    def __call__(self, host: str, port: int, **options: object) -> list[Found]:
        self.asked.set()
        self.over.wait(WITHIN)
        raise socket.gaierror(socket.EAI_AGAIN, "temporary failure")


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    silent = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", silent)
    yield silent
    silent.over.set()


def test_a_name_that_nobody_looks_up_has_a_bound(resolver: Resolver) -> None:
    with pytest.raises(OriginTimeout):
        opened("http://models.example/m", Patience(connect=0.2)).list()
    assert resolver.asked.is_set()


def test_who_waits_for_a_name_is_woken(resolver: Resolver) -> None:
    origin = opened("http://models.example/m")
    with listing(origin) as failure:
        assert resolver.asked.wait(WITHIN)
        origin.close()
        assert failure().retryable


def test_nothing_is_asked_of_a_closed_origin(resolver: Resolver) -> None:
    origin = opened("http://models.example/m")
    origin.close()
    with pytest.raises(OriginFailed):
        origin.list()
    assert not resolver.asked.is_set()
