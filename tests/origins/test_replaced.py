"""A file that is replaced between two ranges, where nothing was listed that tells the two apart."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.test_contract import read
from weightd.errors import OriginChanged
from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference

CONTENT: Final = bytes(range(100))
LISTING: Final = json.dumps({"files": [{"path": "m.bin", "bytes": len(CONTENT)}]}).encode()
NOW: Final = "Thu, 01 Jan 2026 00:00:20 GMT"
FIRST: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
SECOND: Final = "Thu, 01 Jan 2026 00:00:10 GMT"


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


def serving(liar: Liar, told: dict[str, object]) -> None:
    """Serve a listing and its file, whose headers are ``told`` when it is asked for."""

    def answer(request: Request, peer: socket.socket) -> bool:
        if request.path.endswith(".json"):
            peer.sendall(head(200, {}, len(LISTING)) + LISTING)
            return True
        ranged = request.headers.get("Range")
        if ranged is None:
            body = b"" if request.method == "HEAD" else CONTENT
            peer.sendall(head(200, told, len(CONTENT)) + body)
            return True
        first, _, last = ranged.removeprefix("bytes=").partition("-")
        part = CONTENT[int(first) : int(last) + 1]
        where = {"Content-Range": f"bytes {first}-{last}/{len(CONTENT)}"}
        peer.sendall(head(206, {**told, **where}, len(part)) + part)
        return True

    liar.answer = answer


def opened(liar: Liar, path: str) -> Origin:
    patience = Patience(5.0, 10.0)
    return open_origin(parse_reference(liar.url + path), trust=Trust(), patience=patience)


@pytest.mark.parametrize("path", ["/listing.json", "/m.bin"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"ETag": 'W/"1"'}, {"ETag": 'W/"2"'}),
        ({"Last-Modified": FIRST}, {"Last-Modified": SECOND}),
        ({"Last-Modified": FIRST, "Date": NOW}, {"Last-Modified": SECOND, "Date": NOW}),
    ],
)
def test_a_file_that_is_replaced_is_not_mixed(
    liar: Liar, path: str, first: dict[str, object], second: dict[str, object]
) -> None:
    told = dict(first)
    serving(liar, told)
    origin = opened(liar, path)
    try:
        (file,) = origin.list().files
        assert file.validator is None
        assert read(origin, file, 0, 10) == CONTENT[:10]
        told |= second
        with pytest.raises(OriginChanged, match="another one than a moment ago"):
            read(origin, file, 10, 20)
    finally:
        origin.close()


def test_a_single_file_is_the_one_that_was_looked_at(liar: Liar) -> None:
    told: dict[str, object] = {"Last-Modified": FIRST, "Date": NOW}
    serving(liar, told)
    origin = opened(liar, "/m.bin")
    try:
        (file,) = origin.list().files
        told["Last-Modified"] = SECOND
        with pytest.raises(OriginChanged):
            read(origin, file)
    finally:
        origin.close()


def test_a_date_that_is_made_up_says_nothing_beside_an_etag(liar: Liar) -> None:
    told: dict[str, object] = {"ETag": 'W/"1"', "Last-Modified": FIRST}
    serving(liar, told)
    origin = opened(liar, "/listing.json")
    try:
        (file,) = origin.list().files
        assert read(origin, file, 0, 10) == CONTENT[:10]
        told["Last-Modified"] = SECOND
        assert read(origin, file, 10, 20) == CONTENT[10:20]
    finally:
        origin.close()


def test_what_is_told_later_is_held_to_as_well(liar: Liar) -> None:
    """A server that tells less in its answer to a HEAD, or on one of several machines."""
    told: dict[str, object] = {}
    serving(liar, told)
    origin = opened(liar, "/m.bin")
    try:
        (file,) = origin.list().files
        told["Last-Modified"] = FIRST
        assert read(origin, file, 0, 10) == CONTENT[:10]
        told["ETag"] = 'W/"1"'
        assert read(origin, file, 10, 20) == CONTENT[10:20]
        told["Last-Modified"] = SECOND
        assert read(origin, file, 10, 20) == CONTENT[10:20]
        told["ETag"] = 'W/"2"'
        with pytest.raises(OriginChanged):
            read(origin, file, 20, 30)
    finally:
        origin.close()


def test_what_is_listed_anew_may_be_another_one(liar: Liar) -> None:
    told: dict[str, object] = {"Last-Modified": FIRST}
    serving(liar, told)
    origin = opened(liar, "/listing.json")
    try:
        (file,) = origin.list().files
        assert read(origin, file, 0, 10) == CONTENT[:10]
        told["Last-Modified"] = SECOND
        (file,) = origin.list().files
        assert read(origin, file, 0, 10) == CONTENT[:10]
    finally:
        origin.close()
