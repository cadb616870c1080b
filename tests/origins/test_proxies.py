"""The proxy of the environment, which every request goes through unless it says otherwise."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from tests.origins.servers.certificates import Authority
from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.servers.nginx import Nginx
from tests.origins.test_contract import read
from weightd.errors import OriginFailed
from weightd.origins import Patience, Trust, open_origin, parse_reference
from weightd.origins.proxies import proxy_for

CONTENT: Final = b"weights"
PATIENCE: Final = Patience(5.0, 10.0)


@pytest.mark.parametrize(
    ("no_proxy", "host", "direct"),
    [
        ("", "a.example", False),
        ("*", "a.example", True),
        ("example", "a.example", True),
        (".example", "a.example", True),
        ("*.example", "a.example", True),
        ("a.example:443", "a.example", True),
        ("a.example:80", "a.example", False),
        ("ample", "a.example", False),
        ("b.example, A.EXAMPLE", "a.example", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("fd00::/8", "fd00::1", True),
        ("::1", "::1", True),
        ("10.0.0.0/8", "a.example", False),
    ],
)
def test_no_proxy_is_read_as_others_read_it(no_proxy: str, host: str, direct: bool) -> None:
    environ = {"https_proxy": "http://proxy:3128", "NO_PROXY": no_proxy}
    assert (proxy_for("https", host, 443, environ) is None) == direct


def test_which_variable_holds() -> None:
    environ = {"HTTPS_PROXY": "http://u%40:p@upper:1", "all_proxy": "other:2"}
    found = proxy_for("https", "h", 443, environ)
    assert found is not None
    assert (found.host, found.port) == ("upper", 1)
    assert found.authorization == "Basic " + base64.b64encode(b"u@:p").decode()
    assert "Basic" not in repr(found)
    fallback = proxy_for("http", "h", 80, environ)
    assert fallback is not None
    assert (fallback.host, fallback.port) == ("other", 2)
    assert proxy_for("http", "h", 80, {}) is None
    with pytest.raises(ValueError, match="no http://"):
        proxy_for("http", "h", 80, {"http_proxy": "socks5://u:hunter2@h"})


@pytest.fixture
def proxy() -> Iterator[Liar]:
    """Answers for other hosts, and connects to them where it is asked to."""
    with running_liar() as server:
        server.answer = serving
        yield server


def serving(request: Request, peer: socket.socket) -> bool:
    if request.method != "CONNECT":
        body = b"" if request.method == "HEAD" else CONTENT
        peer.sendall(head(200, {"ETag": '"1"'}, len(CONTENT)) + body)
        return True
    host, _, port = request.path.rpartition(":")
    with socket.create_connection((host, int(port))) as there:
        peer.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        back = threading.Thread(target=carry, args=(there, peer))
        back.start()
        carry(peer, there)
        back.join()
    return False


def carry(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_proxy_is_asked_for_http(proxy: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks the name up, so it need not be known here."""
    monkeypatch.setenv("http_proxy", f"http://u:p@127.0.0.1:{proxy.port}")
    reference = parse_reference("http://models.invalid/m.bin?x=1")
    origin = open_origin(reference, trust=Trust(), patience=PATIENCE)
    try:
        assert read(origin, origin.list().files[0]) == CONTENT
    finally:
        origin.close()
    assert {one.path for one in proxy.asked} == {"http://models.invalid/m.bin?x=1"}
    assert proxy.asked[0].headers["Host"] == "models.invalid"
    assert proxy.asked[0].headers["Proxy-Authorization"].startswith("Basic ")


@pytest.mark.needs("nginx", "openssl")
def test_https_goes_through_a_proxy_unseen(
    proxy: Liar, nginx: Nginx, authority: Authority, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nginx.root / name).mkdir()
    (nginx.root / name / "m.bin").write_bytes(CONTENT)
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
    origin = open_origin(
        parse_reference(f"{nginx.https}/{name}/m.bin"),
        trust=Trust(ca_file=str(authority.root)),
        patience=PATIENCE,
    )
    try:
        assert read(origin, origin.list().files[0]) == CONTENT
    finally:
        origin.close()
    assert {one.method for one in proxy.asked} == {"CONNECT"}


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses(proxy: Liar, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(status))

    proxy.answer = answer
    monkeypatch.setenv("https_proxy", f"http://u:hunter2@127.0.0.1:{proxy.port}")
    reference = parse_reference("https://models.invalid/m.bin")
    origin = open_origin(reference, trust=Trust(), patience=PATIENCE)
    try:
        with pytest.raises(OriginFailed, match=f"answered {status}") as raised:
            origin.list()
    finally:
        origin.close()
    assert "hunter2" not in str(raised.value)


def test_a_metadata_service_is_not_asked_for_by_a_proxy(
    proxy: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")

    def answer(request: Request, peer: socket.socket) -> None:
        peer.sendall(head(302, {"Location": "http://169.254.169.254/"}))

    proxy.answer = answer
    reference = parse_reference("http://models.invalid/m.bin")
    origin = open_origin(reference, trust=Trust(), patience=PATIENCE)
    try:
        with pytest.raises(OriginFailed, match="link-local"):
            origin.list()
    finally:
        origin.close()
    assert len(proxy.asked) == 1
