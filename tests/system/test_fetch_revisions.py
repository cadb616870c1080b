"""A second revision that changes one small file costs that file: at the server and on the disk."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.origins.servers.certificates import Authority
from tests.origins.servers.hub import Hub
from tests.origins.servers.nginx import Nginx
from tests.origins.servers.seaweed import Seaweed
from tests.polling import until
from tests.system.daemon import Client, Daemon, running
from tests.system.fetching import LISTING, fetched, publish, sent, shards
from tests.system.journal import settled
from tests.system.models import BLOCK, Content, blocks_of, weights_on_disk
from weightd.units import round_up

KEY: Final = "org/m"
CAPACITY: Final = 64_000_000

LARGE: Final = (6_000_000, 5_000_001)
SMALL: Final = 50_000

FIRST: Final = shards("first", *LARGE, SMALL)
CHANGED: Final = "shard-3.safetensors"
SECOND: Final = Content(
    tuple((path, b"new" * 20_000 if path == CHANGED else data) for path, data in FIRST.files)
)
CHANGED_BYTES: Final = 60_000
CHANGED_BLOCKS: Final = round_up(CHANGED_BYTES, BLOCK)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is fetched from: ``push`` replaces it, ``sent`` is what was sent so far.

    Told by the server itself, or where that keeps no count, by the daemon.
    """

    source: str
    push: Callable[[Content], None]
    sent: Callable[[Client], int]
    options: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture(
    params=[
        pytest.param("hub"),
        pytest.param("listing", marks=pytest.mark.needs("nginx", "openssl")),
        pytest.param("objects", marks=pytest.mark.needs("weed", "boto3", "obstore")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "hub":
        hub: Hub = request.getfixturevalue("hub")
        return Place(
            "hf://org/m",
            functools.partial(_push, hub),
            lambda _: sum(hub.sent),
            environ={"HF_ENDPOINT": hub.url},
        )
    if request.param == "objects":
        seaweed: Seaweed = request.getfixturevalue("seaweed")
        return Place(
            f"s3://public/{tmp_path.name}?anonymous=true",
            functools.partial(_put, seaweed, tmp_path.name),
            _counted,
            environ={"AWS_ENDPOINT_URL": seaweed.url},
        )
    nginx: Nginx = request.getfixturevalue("nginx")
    authority: Authority = request.getfixturevalue("authority")
    return Place(
        f"{nginx.https}/m/{LISTING}",
        lambda content: publish(nginx.root / "m", content),
        lambda _: sent(nginx.answered()),
        options=("--ca-file", str(authority.root)),
    )


def test_it_costs_the_file_that_changed(root: Path, place: Place) -> None:
    place.push(FIRST)
    with running(root, capacity=CAPACITY, options=place.options, environ=place.environ) as daemon:
        first = fetched(daemon.client, KEY, place.source)
        assert place.sent(daemon.client) == FIRST.bytes
        assert _used(daemon) == FIRST.blocks
        asked = place.sent(daemon.client)
        same = fetched(daemon.client, KEY, place.source, revalidate=True)
        assert (same["generation"], place.sent(daemon.client)) == (first["generation"], asked)
        assert daemon.client.call("PUT", f"/v1/pins/replica/{KEY}?ttl=forever").status == 201

        place.push(SECOND)
        asked = place.sent(daemon.client)
        second = fetched(daemon.client, KEY, place.source, revalidate=True)
        assert second["digest"] == SECOND.digest
        assert second["revision"] != first["revision"]
        assert place.sent(daemon.client) - asked == CHANGED_BYTES
        # The old one is pinned, and both are whole; what they share is there once.
        assert FIRST.is_at(Path(first["path"]))
        assert SECOND.is_at(Path(second["path"]))
        assert _shared(first, second) == {path for path, _ in FIRST.files} - {CHANGED}
        assert daemon.client.status()["retired_models"] == 1
        assert _used(daemon) == FIRST.blocks + CHANGED_BLOCKS

    # A new daemon sees the same books by looking at the disk.
    with running(root, capacity=CAPACITY, options=place.options, environ=place.environ) as daemon:
        assert _used(daemon) == FIRST.blocks + CHANGED_BLOCKS
        assert daemon.client.call("DELETE", f"/v1/pins/replica/{KEY}").status == 204
        until(lambda: not os.path.exists(first["path"]))
        assert _used(daemon) == SECOND.blocks
        assert SECOND.is_at(Path(second["path"]))
        assert daemon.client.call("DELETE", f"/v1/models/{KEY}").status == 204
        assert _used(daemon) == 0
        assert daemon.stop() == 0


def _push(hub: Hub, content: Content) -> None:
    hub.push("org/m", dict(content.files))


def _put(seaweed: Seaweed, name: str, content: Content) -> None:
    for path, data in content.files:
        if data != dict(FIRST.files)[path] or content is FIRST:
            seaweed.put("public", f"{name}/{path}", data)


def _counted(client: Client) -> int:
    """The bytes that came from any origin, by the daemon's own count."""
    answer = client.call("GET", "/metrics")
    families = text_string_to_metric_families(answer.body.decode())
    (family,) = (one for one in families if one.name == "weightd_fetch_bytes")
    return int(sum(one.value for one in family.samples if one.name.endswith("_total")))


def _used(daemon: Daemon) -> int:
    """What the books say, which is what the disk says."""
    status = settled(daemon)
    used: int = status["used_bytes"]
    assert used == blocks_of(daemon.root) == sum(disk for _, disk in _inodes(daemon.root))
    return used


def _inodes(root: Path) -> list[tuple[int, int]]:
    return list(weights_on_disk(root).values())


def _shared(one: Any, other: Any) -> set[str]:
    """The files of two records that are the same inode."""
    names = {file["path"] for file in one["files"]} & {file["path"] for file in other["files"]}
    return {
        name
        for name in names
        if os.path.samefile(f"{one['path']}/{name}", f"{other['path']}/{name}")
    }
