"""An origin that repeats what it was sent: no error shows it, wherever the origin puts it."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.test_contract import read
from weightd.errors import WeightdError
from weightd.origins import Origin, Patience, RemoteFile, Trust, open_origin, parse_reference
from weightd.origins.contract import CredentialFile

TOKEN: Final = "token-That-nobody-else-may-see"
PASSWORD: Final = "open'sesame-and-go"
BASIC: Final = f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"
COMMIT: Final = "0123456789" * 4
LISTED: Final = RemoteFile("m.bin", 100, "")


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    with running_liar() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def opened(reference: str, tmp_path: Path, secret: str) -> Origin:
    (tmp_path / "secret").write_text(secret)
    trust = Trust(credentials=(CredentialFile("mine", str(tmp_path / "secret")),))
    patience = Patience(5.0, 10.0)
    parsed = parse_reference(reference)
    return open_origin(parsed, trust=trust, patience=patience, credential="mine")


def said(origin: Origin, *, listing: bool) -> str:
    """All that the error says which it ends in."""
    ask = origin.list if listing else lambda: read(origin, LISTED, 10, 20)
    try:
        with pytest.raises(WeightdError) as raised:
            ask()
    finally:
        origin.close()
    return f"{raised.value} {raised.value.detail} {raised.value.figures()}".lower()


def silent(text: str) -> bool:
    """Whether nothing of a secret is in it, not even a good deal of its start."""
    secrets = (TOKEN, PASSWORD, BASIC.partition(" ")[2])
    return not any(secret[:8].lower() in text for secret in secrets)


@pytest.mark.parametrize(
    ("secret", "repeated"),
    [(TOKEN, TOKEN), (BASIC, BASIC.partition(" ")[2].rstrip("=")), (BASIC, PASSWORD)],
)
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, {"Content-Range": "bytes {}"}),
        (206, {"Content-Range": "bytes 10-19 of the file that was wished for by one with {}"}),
        (206, {"Content-Encoding": "{}"}),
        (206, {"Content-Encoding": "x-{}"}),
        (302, {"Location": "{}:x"}),
        (302, {"Location": "http://{}.invalid/"}),
        (302, {"Location": "http://169.254.169.254.{}/"}),
        (403, {"X-Error-Message": "not with {}"}),
        (200, {"Content-Length": "9" * 30, "X": "{}"}),
    ],
)
def test_in_a_header(
    liar: Liar,
    tmp_path: Path,
    secret: str,
    repeated: str,
    status: int,
    headers: dict[str, str],
) -> None:
    told = {name: value.format(repeated) for name, value in headers.items()}

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(status, told, None if "Content-Length" in told else 10) + b"x" * 10)

    liar.answer = answer
    assert silent(said(opened(f"{liar.url}/m.bin", tmp_path, secret), listing=False))


@pytest.mark.parametrize(
    "entry",
    [
        {"path": f"{TOKEN}/m.bin", "bytes": 1},
        {"path": TOKEN.upper(), "bytes": 1},
        {"path": "m.bin", "bytes": 1, TOKEN: 1},
        {"path": "m.bin", "bytes": 1, "url": f"http://{TOKEN}@h/"},
        {"path": "m.bin", "bytes": 1, "url": f"{TOKEN}://h/"},
        {"path": f"{TOKEN}\udc80", "bytes": 1},
    ],
)
def test_in_a_listing(liar: Liar, tmp_path: Path, entry: dict[str, object]) -> None:
    body = json.dumps({"files": [entry]}).encode()

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {}, len(body)) + body)

    liar.answer = answer
    assert silent(said(opened(f"{liar.url}/m.json", tmp_path, TOKEN), listing=True))


@pytest.mark.parametrize(
    "sibling",
    [
        {"rfilename": f"{TOKEN}.safetensors", "size": 1},
        {"rfilename": f"{TOKEN}.safetensors", "size": -1},
        {"rfilename": "m.safetensors", "size": 1, "blobId": TOKEN},
    ],
)
def test_in_a_hubs_listing(liar: Liar, tmp_path: Path, sibling: dict[str, object]) -> None:
    body = json.dumps({"sha": COMMIT, "siblings": [sibling]}).encode()

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {}, len(body)) + body)

    liar.answer = answer
    assert silent(said(opened("hf://org/m", tmp_path, TOKEN), listing=True))


def test_in_the_choices_of_a_hub(liar: Liar, tmp_path: Path) -> None:
    siblings = [{"rfilename": f"{TOKEN}-{one}.gguf", "size": 1} for one in ("Q4_K_M", "Q8_0")]
    body = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {}, len(body)) + body)

    liar.answer = answer
    assert silent(said(opened("hf://org/m", tmp_path, TOKEN), listing=True))


def test_what_only_begins_as_the_credential_does_is_listed(liar: Liar, tmp_path: Path) -> None:
    body = json.dumps({"files": [{"path": f"{TOKEN[:12]}.bin", "bytes": 1}]}).encode()

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(200, {}, len(body)) + body)

    liar.answer = answer
    origin = opened(f"{liar.url}/m.json", tmp_path, TOKEN)
    try:
        assert len(origin.list().files) == 1
    finally:
        origin.close()
