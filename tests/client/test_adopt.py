"""Adoption by both clients: of a directory, of a file, of a cache of the hub's client."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weightd.client import Client, hubcache
from weightd.client.faults import Unsendable
from weightd.errors import InvalidRequest, TooLarge

WEIGHTS = bytes(range(256)) * 400
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
COMMIT = "c" * 40
ANOTHER = 65534


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


def test_an_empty_path_is_not_the_directory_that_one_is_in(
    client: Client, key: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    for take in (client.adopt, client.put):
        with pytest.raises(Unsendable, match="the path is empty"):
            take(key, "")
    with pytest.raises(Unsendable, match="the path is empty"):
        hubcache.snapshots("")
    assert sorted(os.listdir(home)) == ["deep", "weights"]
    assert client.get(key) is None


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Laid out by hand as the hub's client does, with blobs that repositories share."""
    cache = tmp_path / "hub"
    home = cache / "models--org--m"
    store = cache / "blobs" / "ab" / ("ab" * 32)
    for place in (store.parent, home / "blobs", home / "snapshots" / COMMIT, home / "refs"):
        place.mkdir(parents=True)
    store.write_bytes(WEIGHTS)
    store.with_name(f"{store.name}.refs").write_text("{}")
    (home / "blobs" / DIGEST).symlink_to(f"../../blobs/ab/{store.name}")
    (home / "snapshots" / COMMIT / "weights").symlink_to(f"../../blobs/{DIGEST}")
    (home / "refs" / "main").write_text(COMMIT)
    (home / "trees").mkdir()
    (home / "trees" / f"{COMMIT}.json").write_text("{}")
    return cache


def test_a_revision_of_a_cache_is_taken(client: Client, key: str, cache: Path) -> None:
    found = hubcache.snapshots(cache)
    assert [(one.repository, one.commit, one.refs, one.faults) for one in found] == [
        ("org/m", COMMIT, ("main",), ())
    ]
    model = client.adopt_offering(key, lambda: hubcache.offered(cache, found[0], found))
    assert (model.source, model.revision) == ("hf://org/m", COMMIT)
    assert [one.sha256 for one in model.files] == [DIGEST]
    assert not (cache / "models--org--m").exists()
    assert not os.listdir(cache / "blobs" / "ab")
    assert hubcache.snapshots(cache) == []


def test_a_revision_that_is_here_already_stays_in_its_cache(
    client: Client, key: str, cache: Path
) -> None:
    """Its bytes do, so what leads to them does."""
    found = hubcache.snapshots(cache)
    model = client.put(key, found[0].path)
    again = client.adopt_offering(key, lambda: hubcache.offered(cache, found[0], found))
    assert again.generation == model.generation
    assert hubcache.snapshots(cache) == found


def test_a_link_that_leads_to_itself_is_forgotten_with_the_rest(
    client: Client, key: str, cache: Path
) -> None:
    snapshot = cache / "models--org--m" / "snapshots" / COMMIT
    (snapshot / "around").symlink_to("around")
    found = hubcache.snapshots(cache)
    assert [one.faults for one in found] == [("around is missing: the blob is gone",)]
    client.adopt_offering(key, lambda: hubcache.offered(cache, found[0], found, partial=True))
    assert hubcache.snapshots(cache) == []


@pytest.mark.needs("root")
def test_a_directory_that_is_not_his_to_remove_stays() -> None:
    """The model is here all the same."""
    code = (
        "import os, sys; from weightd.client.offering import directory; "
        f"os.setuid({ANOTHER}); found = directory(sys.argv[1], None); "
        "os.unlink(found.files[0].place); found.tidy()"
    )
    with tempfile.TemporaryDirectory() as parent:
        home = Path(parent) / "home"
        home.mkdir()
        (home / "weights").write_bytes(b"")
        Path(parent).chmod(0o755)
        os.chown(home, ANOTHER, ANOTHER)
        here = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-c", code, str(home)], check=True, cwd=here)
        assert os.listdir(home) == []


def test_what_the_daemon_does_not_take_is_told_by_file(
    client: Client, key: str, home: Path
) -> None:
    model = client.put(key, home)
    with pytest.raises(InvalidRequest, match="within weightd's own root"):
        client.adopt(key, model.path)
    assert (Path(model.path) / "weights").exists()
