"""The settings of fetches in a daemon: whom a replica may have asked, and what is preloaded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.api.origin import http_origin
from tests.polling import until, until_nothing
from tests.system.daemon import Answer, Client, Daemon, running
from weightd.model import Digest, FileEntry, content_digest


def fetch(client: Client, key: str, *sources: str, credential: str | None = None) -> Answer:
    asked = json.dumps({"key": key, "source": sources, "credential": credential}).encode()
    return client.call("POST", "/v1/fetch?wait=30", asked)


def digest_of(name: str, body: bytes) -> Digest:
    return content_digest([FileEntry(name, len(body), hashlib.sha256(body).hexdigest())])


def ended(daemon: Daemon) -> Any:
    """The one fetch there is, once it has ended."""
    (job,) = daemon.client.get("/v1/fetches")["fetches"]
    told = daemon.client.call("GET", f"/v1/fetches/{job['id']}/events").body.splitlines()
    return json.loads(told[-1])["job"]


def test_the_replica_socket_fetches_what_is_allowed_and_nothing_else(root: Path) -> None:
    replicas = root.parent / "replica.sock"
    with http_origin() as origin:
        allowed = origin.file("a/m.bin", bytes(10_000))
        other = origin.file("b/m.bin", bytes(10_000))
        options = ["--replica-socket", str(replicas), "--allow-origins", f"{origin.url}/a/"]
        with running(root, capacity=10_000_000, options=options) as daemon:
            replica = Client(replicas)
            assert fetch(replica, "m", allowed).status == 200
            for client in (replica, daemon.client):
                assert fetch(client, "n", other).status == 403
        assert origin.bodies("b/m.bin") == 0


def test_a_replica_names_only_a_credential_that_says_what_it_is_for(
    root: Path, tmp_path: Path
) -> None:
    """And a mirror that it is not for does not see it."""
    config, secret, replicas = tmp_path / "weightd.toml", tmp_path / "token", tmp_path / "r.sock"
    secret.write_text("token")
    with http_origin() as mirror, http_origin() as origin:
        source, copy = origin.file("m.bin", bytes(10_000)), f"{mirror.url}/m.bin"
        config.write_text(
            f'replica_socket = "{replicas}"\nallow_origins = ["{mirror.url}/", "{origin.url}/"]\n'
            f'[credentials]\nany = "{secret}"\nhub = {{file = "{secret}", for = "{origin.url}/"}}\n'
        )
        with running(root, capacity=10_000_000, options=["--config", str(config)]) as daemon:
            replica = Client(replicas)
            refused = fetch(replica, "m", copy, source, credential="any")
            assert refused.status == 403
            assert str(daemon.socket) in json.loads(refused.body)["detail"]
            for credential, sources in (("absent", (source,)), ("hub", (copy,))):
                refused = fetch(replica, "m", *sources, credential=credential)
                assert (refused.status, json.loads(refused.body)["type"]) == (
                    400,
                    "urn:weightd:problem:invalid-request",
                )
                assert "any" not in json.loads(refused.body)["detail"]
            assert mirror.asked == origin.asked == []
            assert fetch(replica, "m", copy, source, credential="hub").status == 200
            assert mirror.asked
            assert mirror.shown == []
            assert set(origin.shown) == {"Bearer token"}
            fetch(daemon.client, "n", f"{mirror.url}/n.bin", credential="any")
            assert set(mirror.shown) == {"Bearer token"}


def test_a_shared_filesystem_only_where_the_operator_says(root: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for name in ("open", "closed"):
        (shared / name).mkdir(parents=True)
        (shared / name / "weights").write_bytes(bytes(5000))
    options = ["--import-roots", str(shared / "open")]
    with running(root, capacity=10_000_000, options=options) as daemon:
        assert fetch(daemon.client, "m", f"file://{shared}/open").status == 200
        assert fetch(daemon.client, "n", f"file://{shared}/closed").status == 403
        assert fetch(daemon.client, "n", f"file://{shared}/open/../closed").status == 400


def test_what_the_settings_list_is_there_after_a_start_and_stays(
    root: Path, tmp_path: Path
) -> None:
    config = tmp_path / "weightd.toml"
    with http_origin() as origin:
        source, digest = origin.file("m.bin", bytes(10_000)), digest_of("m.bin", bytes(10_000))
        (tmp_path / "token").write_text("token")
        config.write_text(
            f'credentials = {{c = {{file = "{tmp_path}/token", for = "{origin.url}/m.bin"}}}}\n'
            f'[[preload]]\nkey = "m"\nsource = "{source}"\nkeep = "forever"\n'
            f'credential = "c"\ndigest = "{digest}"\n'
        )
        options = ["--config", str(config)]
        with running(root, capacity=10_000_000, options=options) as daemon:
            job = ended(daemon)
            assert (job["key"], job["state"]) == ("m", "done"), job["problem"]
            assert daemon.stop() == 0
        with running(root, capacity=10_000_000, options=options) as daemon:
            assert [one["key"] for one in daemon.client.get("/v1/models")["models"]] == ["m"]
            (pin,) = daemon.client.get("/v1/pins")["pins"]
            assert (pin["holder"], pin["forever"]) == ("weightd:preload", True)
        assert origin.bodies("m.bin") == 1
        assert set(origin.shown) == {"Bearer token"}


def test_what_the_settings_list_no_longer_is_kept_for_nobody(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "weightd.toml"
    with http_origin() as origin:
        source = origin.file("m.bin", bytes(10_000))
        wish = f'[[preload]]\nkey = "m"\nsource = "{source}"\n'
        for keep, pins in (('keep = "forever"\n', 1), ('keep = "1h"\n', 0)):
            config.write_text(wish + keep)
            with running(root, capacity=10_000_000, options=["--config", str(config)]) as daemon:
                until(lambda: daemon.client.get("/v1/models")["models"])
                if pins:
                    until(lambda: daemon.client.get("/v1/pins")["pins"])
                else:
                    until_nothing(lambda: daemon.client.get("/v1/pins")["pins"])
                assert daemon.stop() == 0
