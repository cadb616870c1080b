"""Adoption by both clients: of a directory, of a file, of a cache of the hub's client."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from weightd.client import Client, hubcache
from weightd.client.faults import Unsendable
from weightd.errors import InvalidRequest, TooLarge

WEIGHTS = bytes(range(256)) * 400


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    (place / "deep" / "deeper").mkdir(parents=True)
    (place / "weights").write_bytes(WEIGHTS)
    (place / "deep" / "deeper" / "config.json").write_bytes(b"{}")
    return place


def test_a_directory_is_moved_and_nothing_of_it_is_left(
    client: Client, key: str, home: Path
) -> None:
    model = client.adopt(key, home)
    assert {one.path for one in model.files} == {"weights", "deep/deeper/config.json"}
    assert (Path(model.path) / "weights").read_bytes() == WEIGHTS
    assert not home.exists()


def test_a_file_is_moved_and_its_neighbours_are_not(client: Client, key: str, home: Path) -> None:
    model = client.adopt(key, home / "weights")
    assert Path(model.file or "").read_bytes() == WEIGHTS
    assert os.listdir(home) == ["deep"]


def test_what_is_here_already_stays(client: Client, key: str, home: Path) -> None:
    client.put(key, home)
    client.adopt(key, home)
    assert (home / "weights").read_bytes() == WEIGHTS


def test_a_refusal_has_its_class_and_changes_nothing(client: Client, key: str, home: Path) -> None:
    with (home / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge):
        client.adopt(key, home)
    (home / "large").unlink()
    (home / "link").symlink_to("weights")
    with pytest.raises(Unsendable, match="it is a link"):
        client.adopt(key, home)
    (home / "link").unlink()
    assert sorted(os.listdir(home)) == ["deep", "weights"]
    (home.parent / "nothing").mkdir()
    with pytest.raises(Unsendable, match="there is no file in it"):
        client.adopt(key, home.parent / "nothing")


def test_a_revision_of_a_cache_is_taken(client: Client, key: str, tmp_path: Path) -> None:
    """Laid out by hand, with blobs in the store that repositories share."""
    cache = tmp_path / "hub"
    home, commit = cache / "models--org--m", "c" * 40
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    store = cache / "blobs" / "ab" / ("ab" * 32)
    for place in (store.parent, home / "blobs", home / "snapshots" / commit, home / "refs"):
        place.mkdir(parents=True)
    store.write_bytes(WEIGHTS)
    store.with_name(f"{store.name}.refs").write_text("{}")
    (home / "blobs" / digest).symlink_to(f"../../blobs/ab/{store.name}")
    (home / "snapshots" / commit / "weights").symlink_to(f"../../blobs/{digest}")
    (home / "refs" / "main").write_text(commit)
    (home / "trees").mkdir()
    (home / "trees" / f"{commit}.json").write_text("{}")
    found = hubcache.snapshots(cache)
    assert [(one.repository, one.commit, one.refs, one.faults) for one in found] == [
        ("org/m", commit, ("main",), ())
    ]
    model = client.adopt_offering(key, lambda: hubcache.offered(cache, found[0], found))
    assert (model.source, model.revision) == ("hf://org/m", commit)
    assert [one.sha256 for one in model.files] == [digest]
    assert not home.exists()
    assert not os.listdir(store.parent)
    assert hubcache.snapshots(cache) == []


def test_what_the_daemon_does_not_take_is_told_by_file(
    client: Client, key: str, home: Path
) -> None:
    model = client.put(key, home)
    with pytest.raises(InvalidRequest, match="within weightd's own root"):
        client.adopt(key, model.path)
    assert (Path(model.path) / "weights").exists()
