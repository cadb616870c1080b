"""Lengths that are told, are not, or are none: what is read is what was listed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.origins.servers.liar import Liar, head, running_liar
from tests.origins.test_contract import read
from tests.origins.test_liars import CONTENT, ETAG, SIZE, answering, fails, listed, opened
from weightd.errors import OriginChanged


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("stop", [None, 1000])
def test_a_body_without_a_length_that_is_longer(
    liar: Liar, chunked: bool, stop: int | None
) -> None:
    """Whether it is chunked or goes on to the end of the connection."""
    status, told, body = 200, dict(ETAG), CONTENT + b"x"
    if stop is not None:
        told["Content-Range"] = f"bytes 0-999/{SIZE}"
        status, body = 206, CONTENT[:1001]
    if chunked:
        told["Transfer-Encoding"] = "chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    answering(liar, head(status, told, None), body)
    failure = fails(liar, 0, stop)
    assert isinstance(failure, OriginChanged)
    assert f"goes on after the {stop or SIZE} bytes" in failure.words


def test_a_body_up_to_the_end_of_the_connection(liar: Liar) -> None:
    answering(liar, head(200, ETAG, None), CONTENT)
    origin = opened(liar)
    try:
        assert read(origin, listed()) == CONTENT
    finally:
        origin.close()


def test_the_whole_is_no_fault_where_its_start_was_asked_for(liar: Liar) -> None:
    answering(liar, head(200, ETAG, None), CONTENT)
    origin = opened(liar)
    try:
        assert read(origin, listed(), 0, 1000) == CONTENT[:1000]
    finally:
        origin.close()
