"""Object stores: credentials by every way there is, odd keys, and stores that stall or refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.origins.places import Place
from tests.origins.servers.azurite import Azurite
from tests.origins.servers.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed
from tests.origins.test_contract import read
from weightd.errors import InvalidRequest, OriginFailed
from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference
from weightd.origins.contract import CredentialFile

pytestmark = pytest.mark.needs("obstore")

PATIENCE: Final = Patience(5.0, 20.0)


def opened(
    text: str,
    trust: Trust | None = None,
    credential: str | None = None,
    patience: Patience = PATIENCE,
) -> Origin:
    reference = parse_reference(text)
    return open_origin(reference, trust=trust or Trust(), patience=patience, credential=credential)


def paths(origin: Origin) -> list[str]:
    try:
        return [file.path for file in origin.list().files]
    finally:
        origin.close()


def refused(origin: Origin) -> OriginFailed:
    try:
        with pytest.raises(OriginFailed) as raised:
            origin.list()
    finally:
        origin.close()
    return raised.value


def named(base: Path, text: str) -> Trust:
    (base / "secret").write_text(text)
    return Trust(credentials=(CredentialFile("store", str(base / "secret")),))


# -- Credentials -----------------------------------------------------------------------


@pytest.mark.needs("weed", "boto3")
class TestCredentials:
    @pytest.fixture(autouse=True)
    def model(self, seaweed: Seaweed, name: str) -> None:
        for bucket in ("models", "public"):
            seaweed.put(bucket, f"{name}/w.bin", b"weights")

    def test_the_environment(
        self, seaweed: Seaweed, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        assert paths(opened(f"s3://models/{name}")) == ["w.bin"]

    def test_the_shared_files_of_the_tools(
        self, seaweed: Seaweed, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws" / "credentials").write_text(
            f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n"
            f"[mine]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        )
        (tmp_path / ".aws" / "config").write_text(
            f"[profile mine]\nregion = us-east-1\nendpoint_url = {seaweed.url}\noutput = json\n"
        )
        monkeypatch.setenv("AWS_PROFILE", "mine")
        assert paths(opened(f"s3://models/{name}")) == ["w.bin"]

    @pytest.mark.parametrize("as_json", [False, True])
    def test_a_named_file(self, seaweed: Seaweed, name: str, tmp_path: Path, as_json: bool) -> None:
        settings = {
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "endpoint": seaweed.url,
        }
        lines = "\n".join(f"AWS_{one.upper()}={value}" for one, value in settings.items())
        trust = named(tmp_path, json.dumps(settings) if as_json else lines)
        assert paths(opened(f"s3://models/{name}", trust, "store")) == ["w.bin"]

    def test_nobody_in_particular(
        self, seaweed: Seaweed, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        assert paths(opened(f"s3://public/{name}?anonymous=true")) == ["w.bin"]
        failure = refused(opened(f"s3://models/{name}?anonymous=true"))
        assert (failure.http_status, failure.retryable) == (403, False)

    def test_a_wrong_one_is_told_without_itself(
        self, seaweed: Seaweed, name: str, tmp_path: Path
    ) -> None:
        trust = named(
            tmp_path,
            f"access_key_id = {ACCESS_KEY}\nsecret_access_key = hunter2\nendpoint = {seaweed.url}",
        )
        failure = refused(opened(f"s3://models/{name}", trust, "store"))
        assert (failure.http_status, failure.retryable) == (403, False)
        assert "SignatureDoesNotMatch" in failure.words
        assert "hunter2" not in f"{failure} {failure!r}"

    def test_a_bucket_that_is_not_there(
        self, seaweed: Seaweed, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        failure = refused(opened(f"s3://nowhere/{name}"))
        assert (failure.http_status, failure.retryable) == (404, False)
        assert "NoSuchBucket" in failure.words


@pytest.mark.parametrize(
    ("reference", "secret", "words"),
    [
        ("s3://b/m", "colour = blue", "'colour' that is not understood"),
        ("s3://b/m", "{not json", "neither a JSON object nor lines"),
        ("s3://b/m", "[a", "neither a JSON object nor lines"),
        ("s3://b/m", "endpoint = http://169.254.169.254", "cannot be used"),
        ("s3://b/m", "endpoint = nothing", "cannot be used"),
        ("gs://b/m", '{"type": "service_account", "private_key": "hunter2"}', "make no client"),
        ("az://b/m", '{"account_name": "a", "account_key": "hunter2 is no base64"}', "no client"),
    ],
)
def test_a_credential_that_makes_no_client(
    tmp_path: Path, reference: str, secret: str, words: str
) -> None:
    with pytest.raises(OriginFailed, match=words) as raised:
        opened(reference, named(tmp_path, secret), "store")
    assert not raised.value.retryable
    assert "hunter2" not in str(raised.value)
    with pytest.raises(InvalidRequest, match="there is no 'other' in the settings"):
        opened(reference, named(tmp_path, secret), "other")


# -- What is listed --------------------------------------------------------------------


@pytest.mark.needs("weed", "boto3")
def test_a_prefix_ends_at_a_slash(s3_place: Place, seaweed: Seaweed, name: str) -> None:
    """What merely begins alike is another model; and one object may be all of it."""
    s3_place.put("w.bin", b"weights")
    seaweed.put("models", f"{name}-2/x.bin", b"other")
    origin = s3_place.open()
    try:
        listing = origin.list()
        assert [file.path for file in listing.files] == ["w.bin"]
    finally:
        origin.close()
    single = opened(f"{s3_place.reference}/w.bin", s3_place.trust, "store")
    try:
        (file,) = single.list().files
        assert (file.path, file.bytes) == ("w.bin", 7)
        assert read(single, file) == b"weights"
    finally:
        single.close()


@pytest.mark.needs("weed", "boto3")
def test_markers_of_directories_are_no_files(s3_place: Place) -> None:
    for path in ("", "sub/"):
        s3_place.put(path, b"")
    s3_place.put("sub/w.bin", b"weights")
    s3_place.put("empty.txt", b"")
    assert paths(s3_place.open()) == ["empty.txt", "sub/w.bin"]


@pytest.mark.needs("weed", "boto3")
def test_patterns_choose(s3_place: Place) -> None:
    for path in ("a.bin", "a.json", "sub/b.json"):
        s3_place.put(path, b"x")

    def chosen(query: str) -> list[str]:
        return paths(opened(f"{s3_place.reference}?{query}", s3_place.trust, "store"))

    assert chosen("allow=*.json") == ["a.json", "sub/b.json"]
    assert chosen("allow=*.json&ignore=sub/") == ["a.json"]
    with pytest.raises(InvalidRequest, match="patterns"):
        chosen("allow=nothing")


@pytest.mark.needs("weed", "boto3")
@pytest.mark.parametrize("path", ["with space.bin", "ü/ñ.bin", "a+b&c=d.bin", "100%.bin", "a#b"])
def test_odd_keys_are_read(s3_place: Place, path: str) -> None:
    s3_place.put(path, path.encode())
    origin = s3_place.open()
    try:
        (file,) = origin.list().files
        assert file.path == path
        assert read(origin, file) == path.encode()
    finally:
        origin.close()


@pytest.mark.needs("azurite-blob", "azure-storage-blob")
def test_azure_says_who_is_not_allowed(azurite: Azurite, tmp_path: Path) -> None:
    told = {"account_name": "devstoreaccount1", "endpoint": azurite.url, "account_key": "aHVudGVy"}
    failure = refused(opened("az://models/m", named(tmp_path, json.dumps(told)), "store"))
    assert (failure.http_status, failure.retryable) == (403, False)
    assert "aHVudGVy" not in str(failure)
