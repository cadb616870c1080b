"""One fetch from each kind of server, with a credential that nobody gets to see.

They are slow at first, so that a restart comes half way, and a note of each is on the disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers import azurite as azure
from tests.origins.servers import hub as hub_of
from tests.origins.servers import nginx as web
from tests.origins.servers import seaweed as s3
from tests.origins.servers.azurite import Azurite
from tests.origins.servers.hub import Hub
from tests.origins.servers.nginx import Nginx
from tests.origins.servers.seaweed import Seaweed
from tests.polling import until
from tests.system.daemon import Answer, Client, running
from tests.system.fetching import LISTING, ask, ended, fetched, jobs, publish, refused, shards
from tests.system.journal import settled, verify_disk
from tests.system.models import Content, single

TOKEN: Final = "hf_token-that-nobody-may-see"
WRONG: Final = "Wr0ng+secret+that+nobody+may+see+either+AAAA"
SECRETS: Final = (s3.SECRET_KEY, azure.KEY, web.TOKEN, TOKEN, WRONG, hub_of.SIGNATURE)
SIGNED: Final = re.compile(rb"Signature=(?!\*\*\*)")
"""An address by which anybody may read an object, when its signature is not blotted out."""

CAPACITY: Final = 100_000_000
SIZES: Final = (700_000, 900_000)
SINGLE: Final = single("weights", 800_000)
SLOW: Final = ("--fetch-bandwidth", "400kB", "--fetch-concurrency", "8")


@dataclass(frozen=True, slots=True)
class Overhearing(Client):
    """A client that keeps every answer."""

    told: list[bytes] = field(default_factory=list)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        answer = Client.call(self, method, path, body, headers)
        self.told.append(f"{answer.headers}".encode() + answer.body)
        return answer


@pytest.fixture
def sources(
    nginx: Nginx, seaweed: Seaweed, azurite: Azurite, hub: Hub, tmp_path: Path
) -> dict[str, str]:
    """Where each model is, by its key; a model is another for each kind."""
    name = tmp_path.name
    hub.token = TOKEN
    hub.push("org/m", dict(_model("hf").files))
    publish(nginx.root / "private", _model("http"))
    for path, data in _model("s3").files:
        seaweed.put("models", f"{name}/{path}", data)
    for path, data in _model("az").files:
        azurite.put(f"{name}/{path}", data)
    return {
        "hf": "hf://org/m",
        "http": f"{nginx.without_ranges}/private/{LISTING}",
        "s3": f"s3://models/{name}",
        "az": f"az://models/{name}",
    }


@pytest.fixture
def signed(seaweed: Seaweed, tmp_path: Path) -> str:
    """An address that says in itself by whose leave it is."""
    key = f"{tmp_path.name}-signed/{SINGLE.files[0][0]}"
    seaweed.put("models", key, SINGLE.body)
    asked = {"Bucket": "models", "Key": key}
    address: str = seaweed.client.generate_presigned_url("get_object", asked)
    assert "Signature=" in address
    return address


@pytest.fixture
def config(seaweed: Seaweed, azurite: Azurite, tmp_path: Path) -> Path:
    """Settings that name two credentials for each kind, a right one and a wrong one."""
    place = tmp_path / "secrets"
    place.mkdir()

    def files(right: Mapping[str, str]) -> Iterator[str]:
        for name, secret in right.items():
            (place / name).write_text(secret)
            yield f'{name} = "{place / name}"'

    told = list(files(_secrets(seaweed, azurite)))
    file = tmp_path / "weightd.toml"
    file.write_text("\n".join(["[credentials]", *told, ""]))
    return file


def _secrets(seaweed: Seaweed, azurite: Azurite) -> dict[str, str]:
    def of_s3(key: str) -> str:
        return (
            f"aws_access_key_id = {s3.ACCESS_KEY}\naws_secret_access_key = {key}\n"
            f"endpoint = {seaweed.url}\nregion = us-east-1\n"
        )

    def of_az(key: str) -> str:
        told = {"account_name": azure.ACCOUNT, "account_key": key, "endpoint": azurite.url}
        return json.dumps(told)

    right = {"hf": TOKEN, "http": web.TOKEN, "s3": of_s3(s3.SECRET_KEY), "az": of_az(azure.KEY)}
    wrong = {"hf": WRONG, "http": WRONG, "s3": of_s3(WRONG), "az": of_az(WRONG)}
    return right | {f"wrong-{kind}": secret for kind, secret in wrong.items()}


@pytest.mark.needs(
    "nginx", "openssl", "weed", "boto3", "azurite-blob", "azure-storage-blob", "obstore"
)
def test_each_kind_comes_and_no_secret_is_seen(
    root: Path, sources: dict[str, str], signed: str, config: Path, hub: Hub
) -> None:
    environ = {"HF_ENDPOINT": hub.url}
    options = ["--config", str(config), "--log-level", "debug"]
    told: list[bytes] = []
    with running(root, capacity=CAPACITY, options=[*options, *SLOW], environ=environ) as daemon:
        client = Overhearing(daemon.socket, told)
        for kind, source in sources.items():
            for credential in (None, f"wrong-{kind}"):
                problem = refused(client, f"wrong/{kind}", source, credential=credential)
                assert problem["code"] == "origin-failed", (kind, problem)
                assert not problem["retryable"], (kind, problem)
                job = jobs(client, f"wrong/{kind}")[0]
                client.call("DELETE", f"/v1/fetches/{job['id']}")
            answer = ask(client, kind, source, wait=0, credential=kind)
            assert answer.status == 202, (kind, answer)
        assert ask(client, "signed", signed, wait=0).status == 202
        for kind in (*sources, "signed"):
            until(lambda kind=kind: jobs(client, kind)[0]["bytes_done"])  # type: ignore[misc]
        assert len(list((root / "incoming").glob("*/.arrival.json"))) == len(sources) + 1
        _seen_nowhere(root, daemon.log)
        assert daemon.stop() == 0
    _seen_nowhere(root, daemon.log)

    with running(root, capacity=CAPACITY, options=options, environ=environ) as daemon:
        client = Overhearing(daemon.socket, told)
        for kind in sources:
            job = ended(client, jobs(client, kind)[0]["id"])
            assert job["state"] == "done", job["problem"]
            record = client.get(f"/v1/models/{kind}")
            assert record["digest"] == _model(kind).digest
            assert _model(kind).is_at(Path(record["path"]))
            assert record["revision"]
        # What was secret in an address is forgotten; what came by it is not.
        assert jobs(client, "signed")[0]["state"] == "failed"
        assert client.status()["partials"] == 1
        record = fetched(client, "signed", signed)
        assert SINGLE.is_at(Path(record["path"]))
        for path in ("/v1/models", "/v1/fetches", "/v1/status", "/v1/pins", "/v1/evictions"):
            client.get(path)
        assert client.call("GET", "/metrics").status == 200
        verify_disk(daemon, settled(daemon))
        assert daemon.stop() == 0
    _seen_nowhere(root, daemon.log)
    assert not (found := _secrets_in(b"\n".join(told))), f"it was answered: {found}"
    elsewhere = [one for one in hub.asked if "/cdn/" in one.path]
    assert elsewhere
    assert {one.authorization for one in elsewhere} == {None}


def _seen_nowhere(root: Path, log: Path) -> None:
    """No file that the daemon wrote has a secret in it."""
    for path in [log, *root.rglob("*")]:
        if path.is_file():
            assert not (found := _secrets_in(path.read_bytes())), (path, found)


def _secrets_in(data: bytes) -> list[str]:
    found = [secret for secret in SECRETS if secret.encode() in data]
    return found + [str(data[at.start() :][:80]) for at in SIGNED.finditer(data)]


def _model(kind: str) -> Content:
    return shards(kind, *SIZES)
