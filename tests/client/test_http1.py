"""The parser of answers: it needs no peer, and does not mind how bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd.client.answers import Incoming
from weightd.client.effects import Answer, Body, Request
from weightd.client.http1 import BrokenAnswer, quoted, rendered


def fed(pieces: list[bytes], method: str = "GET") -> Incoming:
    incoming = Incoming(method)
    for piece in pieces:
        incoming.receive(piece)
    return incoming


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The same bytes in pieces, none of them empty: that would be the end."""
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[first:last] for first, last in pairwise(bounds)]


def plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-One: two\r\n\r\n" % len(body) + body


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@given(st.binary(max_size=300), st.integers(1, 50), st.lists(st.integers(0, 1000), max_size=20))
def test_an_answer_is_the_same_however_it_is_cut(body: bytes, size: int, places: list[int]) -> None:
    for data in (plain(body), chunked(body, size)):
        incoming = fed(cut(b"HTTP/1.1 100 Continue\r\n\r\n" + data, places))
        assert incoming.wanted
        assert incoming.ended
        assert incoming.reusable
        assert (incoming.answer().status, incoming.answer().body) == (200, body)


@given(st.binary(max_size=100), st.integers(1, 50), st.integers(0, 400))
def test_an_answer_that_is_cut_short_is_never_whole(body: bytes, size: int, kept: int) -> None:
    for data in (plain(body), chunked(body, size)):
        incoming = fed([data[: min(kept, len(data) - 1)] or b"H"])
        assert not incoming.ended
        with pytest.raises(BrokenAnswer):
            incoming.receive(b"")


@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_refused_and_never_fatal(data: bytes) -> None:
    try:
        incoming = fed([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", data])
        incoming.receive(b"")
    except BrokenAnswer:
        return
    assert incoming.ended


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
    ],
)
def test_what_no_daemon_of_ours_says_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        fed([data])


def test_an_answer_without_a_body_ends_with_its_head() -> None:
    for data, method in (
        (b"HTTP/1.1 204 No Content\r\n\r\n", "DELETE"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 99\r\n\r\n", "HEAD"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET"),
    ):
        incoming = fed([data], method)
        assert incoming.ended
        assert incoming.reusable


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    assert not fed([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"]).reusable
    until_the_end = fed([b"HTTP/1.1 200 OK\r\n\r\nbody", b""])
    assert until_the_end.ended
    assert not until_the_end.reusable
    assert until_the_end.answer().body == b"body"
    # What nobody asked for would be taken for the next answer.
    assert not fed([b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK"]).reusable


def test_lines_come_one_by_one_and_a_refusal_as_a_whole() -> None:
    stream = fed([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na\nb\n\r\n"])
    assert [stream.has_line, stream.line(), stream.line(), stream.has_line] == [
        True,
        b"a",
        b"b",
        False,
    ]
    stream.receive(b"0\r\n\r\n")
    assert stream.has_line
    assert stream.line() is None
    refusal = fed([b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n{\n"])
    assert not refusal.has_line
    refusal.receive(b"}")
    assert refusal.line() == Answer(404, {"content-length": "3"}, b"{\n}")


def test_a_request_is_one_request() -> None:
    request = Request("PUT", "/x", {"A": "b"}, body=Body(lambda: iter([b"y"]), 1))
    assert rendered(request) == (
        b"PUT /x HTTP/1.1\r\nHost: weightd\r\nA: b\r\nContent-Length: 1\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    with pytest.raises(AssertionError):
        rendered(Request("GET", "/x\r\nEvil: yes"))


@given(st.text(max_size=50))
def test_names_are_quoted_so_that_they_come_back(text: str) -> None:
    from urllib.parse import unquote

    encoded = quoted(text.encode("utf-8", "replace").decode(), "/@")
    assert encoded.isascii()
    assert not set(encoded) & set("?#& \r\n")
    assert unquote(encoded, errors="strict") == text.encode("utf-8", "replace").decode()
