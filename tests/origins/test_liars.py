"""Servers that lie, stall and break off: each ends in the error that says so, and in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.test_contract import read
from weightd.errors import OriginChanged, OriginFailed, OriginTimeout
from weightd.origins import Origin, Patience, RemoteFile, Trust, open_origin, parse_reference

CONTENT: Final = bytes(range(256)) * 4000
SIZE: Final = len(CONTENT)
ETAG: Final = {"ETag": '"v1"'}
SHORT: Final = Patience(connect=5.0, progress=0.3)
LONG: Final = Patience(connect=10.0, progress=30.0)


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


def opened(liar: Liar, patience: Patience = LONG, path: str = "/m.bin") -> Origin:
    return open_origin(parse_reference(liar.url + path), trust=Trust(), patience=patience)


def listed(validator: str | None = '"v1"') -> RemoteFile:
    return RemoteFile("m.bin", SIZE, "", validator=validator)


def fails(
    liar: Liar, start: int = 0, stop: int | None = None, patience: Patience = LONG
) -> OriginFailed:
    """The failure that reading a range ends in."""
    origin = opened(liar, patience)
    try:
        with pytest.raises(OriginFailed) as raised:
            read(origin, listed(), start, stop)
    finally:
        origin.close()
    return raised.value


def answering(liar: Liar, *parts: bytes) -> None:
    """Answer every request by these bytes, then close."""

    def answer(request: Request, peer: socket.socket) -> None:
        for part in parts:
            peer.sendall(part)

    liar.answer = answer


# -- Lengths -------------------------------------------------------------------------


def test_a_body_that_ends_early_says_where(liar: Liar) -> None:
    answering(liar, head(200, ETAG, SIZE), CONTENT[:1000])
    failure = fails(liar)
    assert failure.retryable
    assert f"ended after 1000 of {SIZE} bytes" in failure.words


def test_a_length_other_than_listed_is_another_file(liar: Liar) -> None:
    answering(liar, head(200, ETAG, SIZE - 1), CONTENT[:-1])
    assert isinstance(fails(liar), OriginChanged)


def test_more_than_was_said_is_not_read(liar: Liar) -> None:
    """Nor does it become the head of the next answer."""
    answering(liar, head(200, ETAG, SIZE), CONTENT + b"HTTP/1.1 200 OK\r\n\r\n")
    origin = opened(liar)
    try:
        assert read(origin, listed()) == CONTENT
        assert read(origin, listed()) == CONTENT
    finally:
        origin.close()


def test_a_part_of_a_file_of_another_length(liar: Liar) -> None:
    told = {**ETAG, "Content-Range": f"bytes 10-19/{SIZE + 1}"}
    answering(liar, head(206, told, 10), CONTENT[10:20])
    assert isinstance(fails(liar, 10, 20), OriginChanged)


@pytest.mark.parametrize(
    "told", ["bytes 11-20/{}", "bytes 10-29/{}", "bytes */{}", "10-19", "", "bytes 10-19/x"]
)
def test_another_part_than_was_asked_for(liar: Liar, told: str) -> None:
    headers = {**ETAG, "Content-Range": told.format(SIZE)}
    answering(liar, head(206, headers, 10), CONTENT[10:20])
    failure = fails(liar, 10, 20)
    assert not failure.retryable
    assert failure.http_status == 206


def test_a_part_whose_length_contradicts_its_place(liar: Liar) -> None:
    headers = {**ETAG, "Content-Range": f"bytes 10-19/{SIZE}"}
    answering(liar, head(206, headers, 12), CONTENT[10:22])
    assert not fails(liar, 10, 20).retryable


def test_a_shorter_part_is_read_and_then_told(liar: Liar) -> None:
    """A server may give less than was asked for; what came is kept, and asked on from there."""
    headers = {**ETAG, "Content-Range": f"bytes 10-14/{SIZE}"}
    answering(liar, head(206, headers, 5), CONTENT[10:15])
    origin = opened(liar)
    buffer = memoryview(bytearray(100))
    try:
        stream = origin.open(listed(), 10, 20)
        assert stream.readinto(buffer) == 5
        with pytest.raises(OriginFailed) as raised:
            stream.readinto(buffer)
        stream.close()
    finally:
        origin.close()
    assert raised.value.retryable


def test_the_whole_where_a_part_was_asked_for(liar: Liar) -> None:
    answering(liar, head(200, ETAG, SIZE), CONTENT)
    failure = fails(liar, 10, 20)
    assert not failure.ranges


def test_a_chunked_body_that_breaks_off(liar: Liar) -> None:
    headers = {**ETAG, "Transfer-Encoding": "chunked"}
    answering(liar, head(200, headers, None), b"3e8\r\n" + CONTENT[:1000] + b"\r\n")
    assert fails(liar).retryable


def test_a_chunked_body(liar: Liar) -> None:
    headers = {**ETAG, "Transfer-Encoding": "chunked"}
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part)
        for part in (CONTENT[at : at + 70_001] for at in range(0, SIZE, 70_001))
    )
    answering(liar, head(200, headers, None), chunks + b"0\r\n\r\n")
    origin = opened(liar)
    try:
        assert read(origin, listed()) == CONTENT
    finally:
        origin.close()


def test_an_encoded_body_is_refused(liar: Liar) -> None:
    answering(liar, head(200, {**ETAG, "Content-Encoding": "gzip"}, SIZE), CONTENT)
    assert "gzip" in fails(liar).words


def test_a_listing_without_end(liar: Liar) -> None:
    """An answer where a list is expected is not read into memory whatever its length."""

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {"Connection": "close"}, None))
        while not liar.over.is_set():
            peer.sendall(b"[" * (1 << 20))

    liar.answer = answer
    origin = opened(liar, path="/listing.json")
    try:
        with pytest.raises(OriginFailed, match="more than") as raised:
            origin.list()
    finally:
        origin.close()
    assert not raised.value.retryable


# -- Time ----------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", head(200, ETAG, SIZE) + CONTENT[:100]])
def test_a_stall_has_a_bound(liar: Liar, said: bytes) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(said)
        liar.stall()

    liar.answer = answer
    origin = opened(liar, SHORT)
    try:
        with pytest.raises(OriginTimeout) as raised:
            read(origin, listed())
    finally:
        origin.close()
    assert raised.value.seconds == SHORT.progress


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 Told\r\nX: ", head(200, ETAG, SIZE)])
def test_a_trickle_has_a_bound(liar: Liar, start: bytes) -> None:
    """A byte now and then keeps nobody waiting for ever, in a head or in a body."""

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(start)
        while not liar.over.wait(0.02):
            peer.sendall(b"x")

    liar.answer = answer
    origin = opened(liar, SHORT)
    try:
        with pytest.raises(OriginTimeout):
            read(origin, listed())
    finally:
        origin.close()


@pytest.mark.parametrize("by_origin", [False, True])
def test_a_reader_is_woken(liar: Liar, by_origin: bool) -> None:
    """Closing the stream, or all of the origin, from another thread ends a read that waits."""
    stalled = threading.Event()

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, ETAG, SIZE) + CONTENT[:100])
        stalled.set()
        liar.stall()

    liar.answer = answer
    origin = opened(liar)
    buffer = memoryview(bytearray(1000))
    stream = origin.open(listed())
    assert stream.readinto(buffer) == 100
    assert stalled.wait(10)
    failures: list[OriginFailed] = []

    def wait() -> None:
        with pytest.raises(OriginFailed) as raised:
            stream.readinto(buffer)
        failures.append(raised.value)
        stream.close()

    reader = threading.Thread(target=wait)
    reader.start()
    (origin if by_origin else stream).close()
    reader.join(20)
    assert not reader.is_alive()
    assert failures[0].retryable
    origin.close()


def test_who_waits_for_a_head_is_woken(liar: Liar) -> None:
    asked = threading.Event()

    def answer(request: Request, peer: socket.socket) -> None:
        asked.set()
        liar.stall()

    liar.answer = answer
    origin = opened(liar)
    failures: list[OriginFailed] = []

    def wait() -> None:
        with pytest.raises(OriginFailed) as raised:
            origin.open(listed())
        failures.append(raised.value)

    reader = threading.Thread(target=wait)
    reader.start()
    assert asked.wait(10)
    origin.close()
    reader.join(20)
    assert not reader.is_alive()
    assert len(failures) == 1


# -- Refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (403, False), (404, False), (408, True), (410, False),
     (429, True), (451, False), (500, True), (502, True), (503, True), (304, False)],
)  # fmt: skip
def test_a_refusal_says_whether_to_come_back(liar: Liar, status: int, retryable: bool) -> None:
    answering(liar, head(status))
    failure = fails(liar)
    assert (failure.http_status, failure.retryable) == (status, retryable)
    assert str(status) in failure.words


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("7", 7), ("99999999", 3600), ("soon", None), ("-1", None),
     ("Wed, 01 Jan 2020 00:00:00 GMT", 0)],
)  # fmt: skip
def test_retry_after_is_passed_on(liar: Liar, status: int, asked: str, seconds: int | None) -> None:
    answering(liar, head(status, {"Retry-After": asked}))
    failure = fails(liar)
    assert (failure.retry_after, failure.retryable) == (seconds, True)


@pytest.mark.parametrize("reference", ["{url}/m.json", "{url}/m.bin", "hf://org/model"])
def test_retry_after_of_a_listing_is_passed_on(
    liar: Liar, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    """Those of object stores are listed by a client that does not tell it."""
    monkeypatch.setenv("HF_ENDPOINT", liar.url)
    answering(liar, head(429, {"Retry-After": 7}))
    parsed = parse_reference(reference.format(url=liar.url))
    origin = open_origin(parsed, trust=Trust(), patience=LONG)
    try:
        with pytest.raises(OriginFailed) as raised:
            origin.list()
    finally:
        origin.close()
    assert (raised.value.retry_after, raised.value.retryable) == (7, True)


def test_a_refusal_is_told_in_the_origins_words(liar: Liar) -> None:
    words = b"the licence of this model\x1b[31m\nwas not accepted"
    answering(liar, head(403, {"Content-Type": "text/plain"}, len(words)), words)
    failure = fails(liar)
    assert "the licence of this model [31m was not accepted" in failure.words
    assert "no credential was sent" in failure.words


def test_one_file_may_be_refused_alone(liar: Liar) -> None:
    listing = b'{"files": [{"path": "a", "bytes": 1}, {"path": "b", "bytes": 1}]}'

    def answer(request: Request, peer: socket.socket) -> bool:
        if request.path.endswith(".json"):
            peer.sendall(head(200, {}, len(listing)) + listing)
        elif request.path.endswith("/a"):
            peer.sendall(head(200, {}, 1) + b"x")
        else:
            peer.sendall(head(403))
        return True

    liar.answer = answer
    origin = opened(liar, path="/m/listing.json")
    try:
        first, second = origin.list().files
        assert read(origin, first) == b"x"
        with pytest.raises(OriginFailed, match="403") as raised:
            read(origin, second)
    finally:
        origin.close()
    assert not raised.value.retryable


def test_what_is_no_http(liar: Liar) -> None:
    answering(liar, b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    assert "cannot be understood" in fails(liar).words


def test_a_condition_that_fails_is_a_change(liar: Liar) -> None:
    answering(liar, head(412))
    assert isinstance(fails(liar), OriginChanged)
    assert liar.asked[0].headers["If-Match"] == '"v1"'


def test_another_etag_is_a_change_whatever_the_condition_did(liar: Liar) -> None:
    headers = {"ETag": '"v2"', "Content-Range": f"bytes 10-19/{SIZE}"}
    answering(liar, head(206, headers, 10), CONTENT[10:20])
    assert isinstance(fails(liar, 10, 20), OriginChanged)


# -- Connections ---------------------------------------------------------------------


def test_a_connection_is_used_again(liar: Liar) -> None:
    connections = set()

    def answer(request: Request, peer: socket.socket) -> bool:
        connections.add(peer.getpeername())
        peer.sendall(head(200, ETAG, SIZE) + CONTENT)
        return True

    liar.answer = answer
    origin = opened(liar)
    try:
        for _ in range(5):
            assert read(origin, listed()) == CONTENT
    finally:
        origin.close()
    assert len(connections) == 1


def test_a_connection_that_was_ended_meanwhile_is_replaced(liar: Liar) -> None:
    """A server may end an idle connection at any time; that is no failure of the next read."""
    answering(liar, head(200, ETAG, SIZE), CONTENT)
    origin = opened(liar)
    try:
        for _ in range(5):
            assert read(origin, listed()) == CONTENT
    finally:
        origin.close()
    assert len(liar.asked) == 5
