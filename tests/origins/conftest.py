"""Real servers, each started once by the first test that needs it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.origins.places import Place, listing_of, put_file
from tests.origins.servers.azurite import ACCOUNT, KEY, Azurite
from tests.origins.servers.certificates import Authority
from tests.origins.servers.hub import Hub, running_hub
from tests.origins.servers.nginx import Nginx, running_nginx
from tests.origins.servers.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed
from weightd.origins import Trust
from weightd.origins.contract import CredentialFile

_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "HF_", "HUGGING_FACE", "XDG_CACHE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def only_what_the_test_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credential, endpoint or proxy of whoever runs the tests."""
    import os

    for name in list(os.environ):
        if name.startswith(_ENVIRONMENT) or name.lower() in _PROXIES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Nginx]:
    base = tmp_path_factory.mktemp("nginx")
    with running_nginx(base, (authority.certificate, authority.key)) as server:
        yield server


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


# -- One place for each kind of origin ---------------------------------------------


@pytest.fixture
def name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A name of the test's own on a server that others use, too."""
    return f"t{abs(hash((request.node.nodeid, str(tmp_path)))):x}"


@pytest.fixture
def web_place(nginx: Nginx, name: str) -> Place:
    root = nginx.root / name
    return Place(functools.partial(put_file, root), f"{nginx.url}/{name}/one.bin", single=True)


@pytest.fixture
def whole_place(nginx: Nginx, name: str) -> Place:
    root = nginx.root / name
    url = f"{nginx.without_ranges}/{name}/one.bin"
    return Place(functools.partial(put_file, root), url, single=True, ranges=False)


@pytest.fixture
def tls_place(nginx: Nginx, name: str, authority: Authority) -> Place:
    root = nginx.root / name
    return Place(
        functools.partial(put_file, root),
        f"{nginx.https}/{name}/one.bin",
        Trust(ca_file=str(authority.root)),
        single=True,
    )


@pytest.fixture
def listing_place(nginx: Nginx, name: str) -> Place:
    root = nginx.root / name
    files: dict[str, bytes] = {}

    def put(path: str, content: bytes | None) -> None:
        put_file(root, path, content)
        files.pop(path, None)
        if content is not None:
            files[path] = content
        listing_of(root, files)

    return Place(put, f"{nginx.url}/{name}/listing.json", knows_change=False)


@pytest.fixture
def file_place(tmp_path: Path) -> Place:
    root = tmp_path / "shared"
    return Place(
        functools.partial(put_file, root / "model"),
        f"file://{root}/model",
        Trust(import_roots=(str(root),)),
    )


@pytest.fixture
def hub_place(hub: Hub) -> Place:
    files: dict[str, bytes] = {}

    def put(path: str, content: bytes | None) -> None:
        files.pop(path, None)
        if content is not None:
            files[path] = content
        if files:
            hub.push("org/model", files)
            hub.squash("org/model")

    return Place(put, "hf://org/model", states_sha256=frozenset({"one.bin", "a/two.bin"}))


@pytest.fixture
def s3_place(seaweed: Seaweed, name: str, tmp_path: Path) -> Place:
    secret = tmp_path / "s3"
    secret.write_text(
        f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        f"endpoint = {seaweed.url}\nregion = us-east-1\n"
    )
    trust = Trust(credentials=(CredentialFile("store", str(secret)),))
    put = functools.partial(_put_object, seaweed, "models", name)
    return Place(put, f"s3://models/{name}", trust, "store")


@pytest.fixture
def gs_place(seaweed: Seaweed, name: str, tmp_path: Path) -> Place:
    secret = tmp_path / "gs"
    told = {
        "gcs_base_url": seaweed.url, "disable_oauth": True,
        "client_email": "", "private_key": "", "private_key_id": "",
    }  # fmt: skip
    secret.write_text(json.dumps(told))
    trust = Trust(credentials=(CredentialFile("store", str(secret)),))
    put = functools.partial(_put_object, seaweed, "public", name)
    return Place(put, f"gs://public/{name}", trust, "store")


def _put_object(seaweed: Seaweed, bucket: str, name: str, path: str, content: bytes | None) -> None:
    if content is None:
        seaweed.delete(bucket, f"{name}/{path}")
    else:
        seaweed.put(bucket, f"{name}/{path}", content)


@pytest.fixture
def az_place(azurite: Azurite, name: str, tmp_path: Path) -> Place:
    secret = tmp_path / "az"
    told = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": azurite.url}
    secret.write_text(json.dumps(told))

    def put(path: str, content: bytes | None) -> None:
        if content is None:
            azurite.delete(f"{name}/{path}")
        else:
            azurite.put(f"{name}/{path}", content)

    return Place(
        put,
        f"az://models/{name}",
        Trust(credentials=(CredentialFile("store", str(secret)),)),
        "store",
    )
