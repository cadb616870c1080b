"""``http://``: what one file and a listing are, whatever the server tells of them."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.servers.nginx import Nginx
from tests.origins.test_contract import read
from weightd.errors import OriginFailed
from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference

PATIENCE: Final = Patience(5.0, 10.0)
CONTENT: Final = b"weights" * 1000
SHA256: Final = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


def opened(text: str, trust: Trust | None = None) -> Origin:
    return open_origin(parse_reference(text), trust=trust or Trust(), patience=PATIENCE)


def telling(liar: Liar, headers: dict[str, object]) -> None:
    """Answer a HEAD with these headers and a GET with the content, too."""

    def answer(request: Request, peer: socket.socket) -> bool:
        body = b"" if request.method == "HEAD" else CONTENT
        peer.sendall(head(200, headers, len(CONTENT)) + body)
        return True

    liar.answer = answer


# -- One file --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"ETag": '"abc"'}, '"abc"'),
        ({"ETag": 'W/"abc"'}, None),
        ({"ETag": "abc"}, None),
        ({}, None),
        (
            {
                "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
                "Date": "Thu, 01 Jan 2026 01:00:00 GMT",
            },
            "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT",
        ),
        # Written a moment ago: it may be written again within the second.
        (
            {
                "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
                "Date": "Thu, 01 Jan 2026 00:00:10 GMT",
            },
            None,
        ),
        ({"Last-Modified": "yesterday", "Date": "today"}, None),
    ],
)
def test_only_what_changes_with_the_content_is_a_validator(
    liar: Liar, headers: dict[str, object], validator: str | None
) -> None:
    telling(liar, headers)
    origin = opened(f"{liar.url}/m.bin")
    try:
        listing = origin.list()
        assert listing.files[0].validator == validator
        assert (listing.revision is None) == (validator is None)
        assert read(origin, listing.files[0]) == CONTENT
    finally:
        origin.close()
    conditions = {"If-Match", "If-Unmodified-Since"} & liar.asked[-1].headers.keys()
    assert len(conditions) == (validator is not None)


@pytest.mark.parametrize(
    ("headers", "stated"),
    [
        ({"X-Checksum-Sha256": SHA256.upper()}, True),
        ({"Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(SHA256)).decode()}:"}, True),
        ({"Digest": f"SHA-256={base64.b64encode(bytes.fromhex(SHA256)).decode()}"}, True),
        ({"Digest": "md5=AAAA, sha-256=AAAA"}, False),
        # Sixty-four digits that happen to be an ETag are no hash of anything.
        ({"ETag": f'"{SHA256}"'}, False),
    ],
)
def test_a_sha256_is_one_only_where_it_is_called_so(
    liar: Liar, headers: dict[str, object], stated: bool
) -> None:
    telling(liar, headers)
    origin = opened(f"{liar.url}/m.bin")
    try:
        assert origin.list().files[0].sha256 == (SHA256 if stated else None)
    finally:
        origin.close()


@pytest.mark.parametrize("status", [400, 401, 403, 405, 501])
def test_who_answers_no_head_is_asked_for_one_byte(liar: Liar, status: int) -> None:
    """A signed address is signed for GET alone."""

    def answer(request: Request, peer: socket.socket) -> bool:
        if request.method == "HEAD":
            peer.sendall(head(status))
        else:
            assert request.headers["Range"] == "bytes=0-0"
            told = {"ETag": '"1"', "Content-Range": f"bytes 0-0/{len(CONTENT)}"}
            peer.sendall(head(206, told, 1) + CONTENT[:1])
        return True

    liar.answer = answer
    origin = opened(f"{liar.url}/m.bin?sig=x")
    try:
        if status == 501:
            with pytest.raises(OriginFailed):
                origin.list()
            return
        (file,) = origin.list().files
    finally:
        origin.close()
    assert (file.path, file.bytes, file.validator) == ("m.bin", len(CONTENT), '"1"')


def test_a_name_is_the_last_segment_decoded(liar: Liar) -> None:
    telling(liar, {})
    origin = opened(f"{liar.url}/a/my%20model.bin?download=true")
    try:
        assert origin.list().files[0].path == "my model.bin"
    finally:
        origin.close()
    assert liar.asked[0].path == "/a/my%20model.bin?download=true"


# -- A listing -------------------------------------------------------------------------


def listing_as(liar: Liar, body: bytes) -> Origin:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {}, len(body)) + body)

    liar.answer = answer
    return opened(f"{liar.url}/models/m/listing.json")


@pytest.mark.needs("nginx", "openssl")
def test_a_listing_names_files_anywhere_below_its_host(nginx: Nginx, name: str) -> None:
    base = nginx.root / name
    (base / "blobs").mkdir(parents=True)
    (base / "blobs" / "x y").write_bytes(CONTENT)
    (base / "m").mkdir()
    (base / "m" / "c#1.json").write_bytes(b"{}")
    files = [
        {"path": "w.bin", "bytes": len(CONTENT), "sha256": SHA256, "url": "../blobs/x%20y"},
        {"path": "c#1.json", "bytes": 2},
        {"path": "again.bin", "bytes": len(CONTENT), "url": f"/{name}/blobs/x%20y"},
    ]
    (base / "m" / "listing.json").write_text(json.dumps({"files": files}))
    origin = opened(f"{nginx.url}/{name}/m/listing.json")
    try:
        listing = origin.list()
        assert [(file.path, file.sha256) for file in listing.files] == [
            ("again.bin", None),
            ("c#1.json", None),
            ("w.bin", SHA256),
        ]
        assert [read(origin, file) for file in listing.files] == [CONTENT, b"{}", CONTENT]
        assert listing.revision is None
    finally:
        origin.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"files": []}',
        b'{"files": {}}',
        b'{"files": ["a"]}',
        b'{"files": [{"path": "a"}]}',
        b'{"files": [{"path": "a", "bytes": -1}]}',
        b'{"files": [{"path": "a", "bytes": true}]}',
        b'{"files": [{"path": "a", "bytes": 1.5}]}',
        b'{"files": [{"path": 1, "bytes": 1}]}',
        b'{"files": [{"path": "a", "bytes": 1, "sha256": "x"}]}',
        b'{"files": [{"path": "a", "bytes": 1, "sha256": 5}]}',
        b'{"files": [{"path": "a", "bytes": 1, "url": 5}]}',
        b'{"files": [{"path": "a", "bytes": 1, "url": "file:///etc/passwd"}]}',
        b'{"files": [{"path": "a", "bytes": 1, "url": "s3://b/x"}]}',
        b'{"files": [{"path": "a", "bytes": 1, "url": "http://169.254.169.254/x"}]}',
        b'{"files": [{"path": "a", "bytes": 1, "url": "http://u:p@h/x"}]}',
        b'{"files": [{"path": "a", "bytes": 1, "url": "//[/x"}]}',
        b'{"files": [{"path": "a", "bytes": 1, "size": 1}]}',
    ],
)
def test_a_listing_that_cannot_be_used(liar: Liar, body: bytes) -> None:
    origin = listing_as(liar, body)
    try:
        with pytest.raises(OriginFailed, match="listing cannot be used") as raised:
            origin.list()
    finally:
        origin.close()
    assert not raised.value.retryable


def test_a_listing_leads_only_where_a_source_may(liar: Liar) -> None:
    """The allow list holds for each file, and names that are no files are left to the cache."""
    listing_as(liar, b'{"files": [{"path": "a", "bytes": 1, "url": "http://other.example/x"}]}')
    trust = Trust(allowed=(liar.url,))
    origin = opened(f"{liar.url}/listing.json", trust)
    try:
        with pytest.raises(OriginFailed, match="allow_origins"):
            origin.list()
    finally:
        origin.close()
