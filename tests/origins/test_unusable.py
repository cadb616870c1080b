"""Listings that no model can be made of: each is refused in time, and by its name."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.test_contract import read
from weightd.errors import OriginFailed
from weightd.origins import Origin, Patience, RemoteFile, Trust, open_origin, parse_reference

PATIENCE: Final = Patience(5.0, 10.0)
DEEP: Final = b"[" * 100_000 + b"]" * 100_000
COMMIT: Final = "0123456789" * 4


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    with running_liar() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def saying(liar: Liar, body: bytes) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {}, len(body)) + body)

    liar.answer = answer


def opened(reference: str, trust: Trust | None = None) -> Origin:
    return open_origin(parse_reference(reference), trust=trust or Trust(), patience=PATIENCE)


def refusal(reference: str, trust: Trust | None = None) -> OriginFailed:
    """What listing it ends in."""
    origin = opened(reference, trust)
    try:
        with pytest.raises(OriginFailed) as raised:
            origin.list()
    finally:
        origin.close()
    assert not raised.value.retryable
    raised.value.detail.encode()
    return raised.value


def listing_of(*entries: object) -> bytes:
    return json.dumps({"files": entries}).encode()


def repository_of(*siblings: object) -> bytes:
    return json.dumps({"sha": COMMIT, "id": "org/m", "siblings": siblings}).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"files": ' + b"[" * 100_000, id="deep and open"),
        pytest.param(b'{"files": ' + DEEP + b"}", id="deep"),
        pytest.param(listing_of(*[{"path": "a", "bytes": 1}] * 10_001), id="many files"),
        pytest.param(listing_of({"path": "a\udc80b", "bytes": 1}), id="a surrogate in a path"),
        pytest.param(
            listing_of({"path": "a", "bytes": 1, "url": "http://\udc80/"}),
            id="a surrogate in an address",
        ),
        pytest.param(listing_of({"path": "a", "bytes": 2**63}), id="19 digits"),
        pytest.param(b'{"files": [{"path": "a", "bytes": 1' + b"0" * 400 + b"}]}", id="400 digits"),
        pytest.param(
            b'{"files": [{"path": "a", "bytes": 1' + b"0" * 5000 + b"}]}", id="5000 digits"
        ),
    ],
)
def test_a_listing_file(liar: Liar, body: bytes) -> None:
    saying(liar, body)
    assert "its listing cannot be used" in refusal(f"{liar.url}/listing.json").words


def test_what_would_cost_memory_is_not_made_into_objects(liar: Liar) -> None:
    for many in (b"{},", b"[],", b'"ab",', b"1234,"):
        saying(liar, b'{"files": [' + many * 1_000_000 + b"{}]}")
        assert "more than any list" in refusal(f"{liar.url}/listing.json").words


def test_as_many_files_as_a_model_may_have(liar: Liar) -> None:
    """With names and hashes as long as they are wont to be, and signed addresses."""
    count = 10_000
    entries = [
        {
            "path": f"{'d' * 100}/{'x' * 100}{number:05}",
            "bytes": 1,
            "sha256": "0" * 64,
            "url": f"{number:05}?{'s' * 300}",
        }
        for number in range(count)
    ]
    saying(liar, listing_of(*entries))
    origin = opened(f"{liar.url}/listing.json")
    try:
        assert len(origin.list().files) == count
    finally:
        origin.close()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(DEEP, id="deep"),
        pytest.param(
            repository_of({"rfilename": "a\udc80b.safetensors", "size": 1}), id="a surrogate"
        ),
        pytest.param(repository_of({"rfilename": "a", "size": 2**63}), id="a size"),
        pytest.param(
            repository_of({"rfilename": "a", "lfs": {"sha256": "0" * 64, "size": 2**63}}),
            id="a size of a large file",
        ),
        pytest.param(
            repository_of({"rfilename": "a", "size": -1}), id="a size that is less than none"
        ),
        pytest.param(
            b'{"siblings": [' + b"{}," * 2_000_000 + b"{}]}",
            id="many objects",
        ),
    ],
)
def test_a_hub(liar: Liar, body: bytes) -> None:
    saying(liar, body)
    assert "its listing cannot be used" in refusal("hf://org/m").words


def test_a_hub_with_more_files_than_are_looked_at(liar: Liar) -> None:
    saying(liar, repository_of(*[{"rfilename": "a"}] * 50_001))
    assert "more than 50000" in refusal("hf://org/m").words


def test_a_body_in_chunks_of_a_byte(liar: Liar) -> None:
    content = bytes(range(256)) * 300

    def answer(request: Request, peer: socket.socket) -> None:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in content)
        peer.sendall(head(200, {"Transfer-Encoding": "chunked"}, None) + chunks + b"0\r\n\r\n")

    liar.answer = answer
    origin = opened(f"{liar.url}/m.bin")
    try:
        assert read(origin, RemoteFile("m.bin", len(content), "")) == content
    finally:
        origin.close()


@pytest.mark.parametrize("endless", [b"X-Y: z\r\n" * 10_000, b"1;" + b"x" * 60_000 + b"\r\n.\r\n"])
@pytest.mark.parametrize("path", ["/m.json", "/m.bin", "hub"])
def test_what_goes_on_around_a_body(liar: Liar, endless: bytes, path: str) -> None:
    """Trailers without end, or chunks that are hardly anything but their heads."""
    start = b"0\r\n" if endless.startswith(b"X") else b""

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {"Transfer-Encoding": "chunked"}, None) + start)
        while not liar.over.is_set():
            peer.sendall(endless)

    liar.answer = answer
    if path == "/m.bin":
        origin = opened(liar.url + path)
        try:
            with pytest.raises(OriginFailed, match="more around") as raised:
                read(origin, RemoteFile("m.bin", 5000, ""))
        finally:
            origin.close()
        assert not raised.value.retryable
    else:
        reference = "hf://org/m" if path == "hub" else liar.url + path
        assert "more around" in refusal(reference).words


@pytest.mark.parametrize("digits", [str(2**63), "1" + "0" * 30, "1" + "0" * 5000], ids=len)
@pytest.mark.parametrize("path", ["/m.bin", "/m.json"])
def test_a_length_that_nothing_has(liar: Liar, digits: str, path: str) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {"Content-Length": digits}, None))

    liar.answer = answer
    assert "a length that nothing has" in refusal(liar.url + path).words
    origin = opened(liar.url + path)
    try:
        with pytest.raises(OriginFailed, match="a length that nothing has"):
            read(origin, RemoteFile("m.bin", 5, ""))
    finally:
        origin.close()


@pytest.mark.parametrize("below", [b"\xff.bin", b"\xfe/a.bin"])
def test_a_file_whose_name_is_not_utf_8(tmp_path: Path, below: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), below)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"x")
    failure = refusal(f"file://{tmp_path}", Trust(import_roots=(str(tmp_path),)))
    assert "is not UTF-8" in failure.words
    assert "\\udcf" in failure.words


def test_what_cannot_be_read_is_named_as_it_can_be(tmp_path: Path) -> None:
    """A link to nowhere, of a name that is not UTF-8."""
    os.symlink(b"/nowhere", os.path.join(os.fsencode(tmp_path), b"\xff"))
    failure = refusal(f"file://{tmp_path}?ignore=b", Trust(import_roots=(str(tmp_path),)))
    assert "\\udcff" in failure.words
