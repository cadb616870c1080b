"""Where an origin may send a reader, and what goes along."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.certificates import Authority
from tests.origins.servers.liar import Liar, Request, head, running_liar
from tests.origins.servers.nginx import Nginx
from tests.origins.test_contract import read
from weightd.errors import Forbidden, OriginFailed
from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference
from weightd.origins.addresses import address_refusal
from weightd.origins.contract import CredentialFile

CONTENT: Final = b"weights"
TOKEN: Final = "token-that-nobody-else-may-see"
PATIENCE: Final = Patience(5.0, 10.0)


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Liar]:
    """A second host."""
    with running_liar() as server:
        server.answer = content
        yield server


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    secret = tmp_path / "secret"
    secret.write_text(f"{TOKEN}\n")
    return Trust(credentials=(CredentialFile("mine", str(secret)),))


def content(request: Request, peer: socket.socket) -> bool:
    body = b"" if request.method == "HEAD" else CONTENT
    peer.sendall(head(200, {"ETag": '"1"'}, len(CONTENT)) + body)
    return True


def redirecting(liar: Liar, location: str, status: int = 302) -> None:
    def answer(request: Request, peer: socket.socket) -> bool:
        if request.path.startswith("/here"):
            return content(request, peer)
        peer.sendall(head(status, {"Location": location}))
        return True

    liar.answer = answer


def opened(liar: Liar, trust: Trust, credential: str | None = "mine") -> Origin:
    reference = parse_reference(f"{liar.url}/m.bin")
    return open_origin(reference, trust=trust, patience=PATIENCE, credential=credential)


def fetched(origin: Origin) -> bytes:
    try:
        (file,) = origin.list().files
        return read(origin, file)
    finally:
        origin.close()


def refused(origin: Origin) -> OriginFailed:
    try:
        with pytest.raises(OriginFailed) as raised:
            origin.list()
    finally:
        origin.close()
    assert not raised.value.retryable
    return raised.value


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/here", "here", "//{host}/here", "{url}/here"])
def test_redirects_are_followed(liar: Liar, trust: Trust, status: int, location: str) -> None:
    host = liar.url.removeprefix("http://")
    redirecting(liar, location.format(host=host, url=liar.url), status)
    assert fetched(opened(liar, trust)) == CONTENT
    assert all(one.headers["Authorization"] == f"Bearer {TOKEN}" for one in liar.asked)


def test_a_credential_goes_to_its_own_host_only(liar: Liar, other: Liar, trust: Trust) -> None:
    """Another port is another host, and so is another name of the same address."""
    redirecting(liar, f"{other.url}/m.bin")
    assert fetched(opened(liar, trust)) == CONTENT
    redirecting(liar, f"http://localhost:{liar.port}/here")
    assert fetched(opened(liar, trust)) == CONTENT
    assert other.asked
    assert not any("Authorization" in one.headers for one in other.asked)
    at_home = [one for one in liar.asked if not one.headers["Host"].startswith("localhost")]
    elsewhere = [one for one in liar.asked if one.headers["Host"].startswith("localhost")]
    assert all("Authorization" in one.headers for one in at_home)
    assert elsewhere
    assert not any("Authorization" in one.headers for one in elsewhere)


def test_a_credential_does_not_come_back_by_another_host(
    liar: Liar, other: Liar, trust: Trust
) -> None:
    """The other host sends on to the first, which is where the credential belongs."""
    redirecting(liar, f"{other.url}/m.bin")
    redirecting(other, f"{liar.url}/here")
    assert fetched(opened(liar, trust)) == CONTENT
    assert not any("Authorization" in one.headers for one in other.asked)


METADATA: Final = [
    "http://169.254.169.254/latest/meta-data/",
    "http://[fe80::1%25lo]/",
    "http://[fd00:ec2::254]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1:a9fe:a9:fe00::]/",
    "http://[64:ff9b:1:ffa9:fe:a9fe::]/",
    "http://[64:ff9b:1:ffff:a9:fea9:fe00:0]/",
    "http://[64:ff9b:1::a9fe:a9fe]/",
    "http://[64:ff9b:1::6464:64c8]/",
    "http://[::ffff:0:169.254.169.254]/",
    "http://[2001::a9fe:a9fe:0:0:0:0]/",
    "http://[2001:0:0:0:0:0:5601:5601]/",
    "http://[fd00:42::42]/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://2852039166/",
    "http://0xa9.0xfe.0xa9.0xfe/",
    "http://169.254.43518/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://METADATA.google.internal./",
    "http://0.0.0.0/",
]


@pytest.mark.parametrize("location", METADATA)
def test_nobody_is_led_to_a_metadata_service(liar: Liar, trust: Trust, location: str) -> None:
    redirecting(liar, location)
    failure = refused(opened(liar, trust))
    assert len(liar.asked) == 1
    assert "address" in failure.words or "metadata" in failure.words


@pytest.mark.parametrize("location", METADATA)
def test_a_metadata_service_is_no_source(trust: Trust, location: str) -> None:
    with pytest.raises(Forbidden):
        open_origin(
            parse_reference(location.replace("%25", "%") + "x"), trust=trust, patience=PATIENCE
        )


@pytest.mark.parametrize(
    "host",
    ["64:ff9b:1::c000:201", "64:ff9b:1:c000:2:100::", "2001:0:c000:201::3fff:fdfe",
     "::ffff:0:192.0.2.1", "fd00:42::43", "2001:db8::a9fe:a9fe"],
)  # fmt: skip
def test_other_addresses_of_these_kinds_are_sources(host: str) -> None:
    assert address_refusal(host) is None


def test_a_name_is_refused_for_what_it_resolves_to(
    liar: Liar, trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked up once: whoever answers differently the second time is not asked again."""
    looked_up: list[str] = []
    really = socket.getaddrinfo

    def resolver(host: str, *arguments: object, **named: object) -> object:
        if host != "rebinding.test":
            return really(host, *arguments, **named)  # type: ignore[arg-type]
        looked_up.append(host)
        address = ("127.0.0.1", liar.port), ("169.254.169.254", liar.port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in address]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    reference = parse_reference(f"http://rebinding.test:{liar.port}/m.bin")
    failure = refused(open_origin(reference, trust=trust, patience=PATIENCE))
    assert "169.254.169.254" in failure.words
    assert not liar.asked
    assert looked_up == ["rebinding.test"]


@pytest.mark.parametrize(
    "location",
    ["ftp://127.0.0.1/m", "file:///etc/passwd", "javascript:1", "http://u:p@127.0.0.1/m",
     "http://127.0.0.1:99999/m", "http://[::1/m"],
)  # fmt: skip
def test_no_other_place_is_followed_to(liar: Liar, trust: Trust, location: str) -> None:
    redirecting(liar, location)
    origin = opened(liar, trust)
    try:
        with pytest.raises(OriginFailed):
            origin.list()
    finally:
        origin.close()
    assert len(liar.asked) == 1


def test_a_circle_ends(liar: Liar, trust: Trust) -> None:
    redirecting(liar, "/again")
    assert "more than 5 times" in refused(opened(liar, trust)).words
    assert len(liar.asked) == 6


@pytest.mark.needs("nginx", "openssl")
def test_https_does_not_lead_to_http(nginx: Nginx, trust: Trust, authority: Authority) -> None:
    secure = Trust(ca_file=str(authority.root), credentials=trust.credentials)
    reference = parse_reference(f"{nginx.https}/to-http/m.bin")
    origin = open_origin(reference, trust=secure, patience=PATIENCE, credential="mine")
    assert "from https to http://" in refused(origin).words


@pytest.mark.needs("nginx", "openssl")
def test_a_certificate_that_nobody_signed(nginx: Nginx, trust: Trust) -> None:
    reference = parse_reference(f"{nginx.https}/m.bin")
    origin = open_origin(reference, trust=trust, patience=PATIENCE)
    assert "certificate" in refused(origin).words


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("nothing")
    for name in ("ca", "absent"):
        trust = Trust(ca_file=str(tmp_path / name))
        reference = parse_reference("https://127.0.0.1:9/m.bin")
        assert "ca_file" in refused(open_origin(reference, trust=trust, patience=PATIENCE)).words


# -- Secrets -------------------------------------------------------------------------


def test_no_secret_is_shown(liar: Liar, trust: Trust, caplog: pytest.LogCaptureFixture) -> None:
    """Not by an error, a repr or a log, whoever repeats it; but it is sent where it belongs."""

    def answer(request: Request, peer: socket.socket) -> None:
        words = f"{request.path} {request.headers['Authorization']}".encode()
        peer.sendall(head(403, {"Content-Type": "text/plain"}, len(words)) + words)

    liar.answer = answer
    text = f"{liar.url}/m.bin?X-Amz-Signature=0123456789abcdef&X-Amz-Credential=AKIA&part=2"
    reference = parse_reference(text)
    origin = open_origin(reference, trust=trust, patience=PATIENCE, credential="mine")
    failure = refused(origin)
    shown = f"{failure} {failure!r} {failure.figures()} {reference} {reference!r} {origin!r}"
    shown += caplog.text
    for secret in (TOKEN, "0123456789abcdef", "AKIA"):
        assert secret not in shown
    assert "part=2" in reference.text
    assert reference.secret
    assert "X-Amz-Signature=0123456789abcdef" in liar.asked[0].path
    assert "with credential 'mine'" in failure.words


@pytest.mark.parametrize(
    ("secret", "header", "value"),
    [
        ("abc", "Authorization", "Bearer abc"),
        ("Basic dTpw", "Authorization", "Basic dTpw"),
        ("X-Api-Key: k 1", "X-Api-Key", "k 1"),
    ],
)
def test_a_credential_is_a_token_or_a_header(
    liar: Liar, tmp_path: Path, secret: str, header: str, value: str
) -> None:
    liar.answer = content
    (tmp_path / "c").write_text(secret)
    trust = Trust(credentials=(CredentialFile("c", str(tmp_path / "c")),))
    assert fetched(opened(liar, trust, "c")) == CONTENT
    assert liar.asked[0].headers[header] == value


@pytest.mark.parametrize("secret", ["a\r\nX: y", "", "tökén", "a\x00b"])
def test_a_credential_that_is_none(liar: Liar, tmp_path: Path, secret: str) -> None:
    (tmp_path / "c").write_bytes(secret.encode())
    trust = Trust(
        credentials=(
            CredentialFile("c", str(tmp_path / "c")),
            CredentialFile("d", str(tmp_path / "absent")),
        )
    )
    for name in ("c", "d"):
        with pytest.raises(OriginFailed, match="credential") as raised:
            opened(liar, trust, name)
        assert not raised.value.retryable
    assert not liar.asked
