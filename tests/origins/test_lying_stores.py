"""Object stores that stall, refuse, break off or lie, by either way that their bytes come."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.certificates import Authority
from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.servers.nginx import Nginx
from tests.origins.test_contract import read
from tests.origins.test_objects import PATIENCE, named, opened, paths, refused
from weightd.errors import OriginChanged, OriginFailed, OriginTimeout
from weightd.origins import Origin, Patience, Trust

pytestmark = pytest.mark.needs("obstore")

CONTENT: Final = bytes(range(256)) * 20_000


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


LISTED: Final = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult><Name>b</Name><Prefix>m/</Prefix><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys>
<IsTruncated>false</IsTruncated><Contents><Key>m/w.bin</Key><LastModified>2026-01-01T00:00:00.000Z
</LastModified><ETag>&quot;v1&quot;</ETag><Size>{len(CONTENT)}</Size></Contents>
</ListBucketResult>""".replace("Z\n", "Z").encode()
MODIFIED: Final = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "ETag": '"v1"'}


@pytest.fixture(params=["s3", "gs"])
def scheme(request: pytest.FixtureRequest) -> str:
    """One whose bytes are read from an address, and one whose client reads them."""
    found: str = request.param
    return found


def store(liar: Liar, scheme: str, base: Path, patience: Patience = PATIENCE) -> Origin:
    """An origin whose store lists one object and answers for it as the test says."""
    told = liar.answer

    def answer(request: Request, peer: socket.socket) -> bool | None:
        if "list-type" not in request.path:
            return told(request, peer)
        peer.sendall(head(200, {"Content-Type": "application/xml"}, len(LISTED)) + LISTED)
        return True

    liar.answer = answer
    if scheme == "s3":
        trust = named(base, f"endpoint = {liar.url}\nanonymous = true")
    else:
        account = {"gcs_base_url": liar.url, "disable_oauth": True, "client_email": ""}
        trust = named(base, json.dumps({**account, "private_key": "", "private_key_id": ""}))
    return opened(f"{scheme}://b/m", trust, "store", patience)


def part(start: int, stop: int, **headers: str) -> bytes:
    told = {**MODIFIED, **headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(CONTENT)}"}
    return head(206, told, stop - start)


def test_a_reader_of_a_store_that_stalls_is_woken(liar: Liar, scheme: str, tmp_path: Path) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(part(0, len(CONTENT)) + CONTENT[: 2 << 20])
        liar.stall()

    liar.answer = answer
    origin = store(liar, scheme, tmp_path)
    (file,) = origin.list().files
    stream = origin.open(file)
    buffer = memoryview(bytearray(1 << 20))
    assert stream.readinto(buffer) > 0
    failures: list[OriginFailed] = []

    def drain() -> None:
        try:
            while stream.readinto(buffer):
                pass
        except OriginFailed as failure:
            failures.append(failure)

    reader = threading.Thread(target=drain)
    reader.start()
    stream.close()
    reader.join(15)
    assert not reader.is_alive()
    assert failures[0].retryable
    origin.close()


def test_a_store_that_stalls_has_a_bound(liar: Liar, scheme: str, tmp_path: Path) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(part(0, len(CONTENT)) + CONTENT[:1000])
        liar.stall()

    liar.answer = answer
    origin = store(liar, scheme, tmp_path, Patience(5.0, 0.3))
    try:
        (file,) = origin.list().files
        with pytest.raises(OriginTimeout):
            read(origin, file)
    finally:
        origin.close()


def test_a_store_that_breaks_off(liar: Liar, scheme: str, tmp_path: Path) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(part(0, len(CONTENT)) + CONTENT[:1000])

    liar.answer = answer
    origin = store(liar, scheme, tmp_path)
    try:
        (file,) = origin.list().files
        with pytest.raises(OriginFailed) as raised:
            read(origin, file)
    finally:
        origin.close()
    assert raised.value.retryable
    assert not isinstance(raised.value, OriginChanged)


@pytest.mark.parametrize(
    ("answered", "retryable"),
    [(head(503), True), (head(500), True), (head(429), True), (head(403), False)],
)
def test_a_store_that_refuses(
    liar: Liar, scheme: str, tmp_path: Path, answered: bytes, retryable: bool
) -> None:
    """It is asked once: who comes back when is decided above."""

    def answer(request: Request, peer: socket.socket) -> bool:
        peer.sendall(answered)
        return True

    liar.answer = answer
    origin = store(liar, scheme, tmp_path)
    try:
        (file,) = origin.list().files
        with pytest.raises(OriginFailed) as raised:
            read(origin, file)
    finally:
        origin.close()
    assert raised.value.retryable == retryable
    assert len(liar.asked) == 2


@pytest.mark.parametrize(
    "answered",
    [
        head(200, MODIFIED, len(CONTENT)),
        part(10, 1010, ETag='"v2"'),
        part(100, 1100),
        head(206, {**MODIFIED, "Content-Range": f"bytes 10-1009/{len(CONTENT) + 1}"}, 1000),
        head(412),
    ],
    ids=["whole", "changed", "elsewhere", "longer", "condition"],
)
def test_a_store_that_lies(liar: Liar, scheme: str, tmp_path: Path, answered: bytes) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        assert {one.lower(): value for one, value in request.headers.items()}["if-match"] == '"v1"'
        peer.sendall(answered + CONTENT[10:1010])

    liar.answer = answer
    origin = store(liar, scheme, tmp_path)
    try:
        (file,) = origin.list().files
        with pytest.raises(OriginFailed):
            read(origin, file, 10, 1010)
    finally:
        origin.close()


def test_a_store_goes_through_the_proxy(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request, peer: socket.socket) -> bool:
        if "list-type" in request.path:
            peer.sendall(head(200, {"Content-Type": "application/xml"}, len(LISTED)) + LISTED)
        else:
            peer.sendall(part(0, 10) + CONTENT[:10])
        return True

    liar.answer = answer
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.invalid")
    monkeypatch.setenv("http_proxy", liar.url)
    origin = opened("s3://b/m?anonymous=true")
    try:
        assert read(origin, origin.list().files[0], 0, 10) == CONTENT[:10]
    finally:
        origin.close()
    assert [one.path.startswith("http://store.invalid/b") for one in liar.asked] == [True, True]
    monkeypatch.setenv("no_proxy", "store.invalid")
    assert refused(opened("s3://b/m?anonymous=true")).retryable


@pytest.mark.needs("nginx", "openssl")
def test_a_store_is_trusted_by_the_ca_file(
    nginx: Nginx, authority: Authority, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server answers the one request of a listing as well as a store does."""
    (nginx.root / name).write_bytes(LISTED)
    monkeypatch.setenv("AWS_ENDPOINT_URL", nginx.https)
    reference = f"s3://{name}/m?anonymous=true"
    assert paths(opened(reference, Trust(ca_file=str(authority.root)))) == ["w.bin"]
    assert refused(opened(reference)).retryable
    with pytest.raises(OriginFailed, match="ca_file"):
        opened(reference, Trust(ca_file=str(authority.root.parent / "absent")))


def test_who_has_not_the_package_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(OriginFailed, match=r"pip install 'weightd\[objects\]'") as raised:
        opened("s3://b/m")
    assert not raised.value.retryable


def test_a_signature_is_seen_by_the_store_alone(
    liar: Liar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys sign the address of each read; where a store repeats it, weightd does not."""

    def answer(request: Request, peer: socket.socket) -> bool:
        if "list-type" in request.path:
            peer.sendall(head(200, {"Content-Type": "application/xml"}, len(LISTED)) + LISTED)
        else:
            words = f"<Error><Code>No</Code><Message>{request.path}</Message></Error>".encode()
            peer.sendall(head(403, {"Content-Type": "application/xml"}, len(words)) + words)
        return True

    liar.answer = answer
    keys = "access_key_id = AKIA\nsecret_access_key = s\nsession_token = token-of-a-session"
    trust = named(tmp_path, f"{keys}\nendpoint = {liar.url}")
    origin = opened("s3://b/m", trust, "store")
    try:
        (file,) = origin.list().files
        with pytest.raises(OriginFailed, match=r"No /b/m/w\.bin") as raised:
            read(origin, file)
    finally:
        origin.close()
    assert "X-Amz-Signature=" in liar.asked[-1].path
    shown = f"{raised.value} {raised.value!r} {file}"
    for secret in ("X-Amz", "AKIA", "token-of-a-session"):
        assert secret not in shown
