"""Every call of both clients, against a daemon."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.client.conftest import CAPACITY
from tests.client.twins import TWINS, twin
from tests.polling import until
from tests.system.daemon import Daemon
from weightd.client import Client
from weightd.client.faults import NotTheSameDirectory, Unsendable
from weightd.client.putting import Sent
from weightd.client.records import Job
from weightd.errors import (
    Busy,
    DigestMismatch,
    Exists,
    GenerationGone,
    NotPinned,
    NotResident,
    OriginFailed,
    Pinned,
    TooLarge,
    UnknownFetch,
)
from weightd.model import FileEntry, Key, content_digest

WEIGHTS = bytes(range(256)) * 400


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path there."""
    return {
        str(one.relative_to(directory)): one.read_bytes()
        for one in directory.rglob("*")
        if one.is_file()
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model's directory as a hub's cache has it: of links, and deeper than one level."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    (snapshot / "original" / "deep").mkdir(parents=True)
    (blobs / "1").write_bytes(WEIGHTS)
    (snapshot / "model.safetensors").symlink_to(blobs / "1")
    (snapshot / "config.json").write_bytes(b"{}")
    (snapshot / "original" / "deep" / ("long-" * 30 + "name")).write_bytes(b"x" * 513)
    (snapshot / "empty").touch()
    return snapshot


def test_a_miss_is_none_and_is_counted(client: Client, key: str) -> None:
    before = client.status()
    assert client.get(key) is None
    assert client.status().misses == before.misses + 1
    with pytest.raises(NotResident) as missed:
        client.path(key)
    assert missed.value.key == key


def test_peeking_counts_nothing(client: Client, key: str) -> None:
    before = client.status()
    assert not client.peek(key)
    client.put(key, b"x")
    assert client.peek(key)
    after = client.status()
    assert (after.hits, after.misses) == (before.hits, before.misses)


def test_bytes_are_put_under_the_names_that_are_said(client: Client, key: str) -> None:
    model = client.put(key, WEIGHTS, file="model.gguf")
    assert model.file == f"{model.path}/model.gguf"
    assert Path(model.file or "").read_bytes() == WEIGHTS
    assert [one.sha256 for one in model.files] == [hashlib.sha256(WEIGHTS).hexdigest()]
    found = client.get(Key.parse(key))
    assert found is not None
    assert (found.generation, found.path, found.hits) == (model.generation, model.path, 1)
    assert client.path(key) == model.path
    assert model.published_at <= time.time()


def test_a_directory_is_put_with_what_its_links_point_at(
    client: Client, key: str, directory: Path
) -> None:
    model = client.put(key, directory)
    assert files_of(Path(model.path)) == files_of(directory)
    entries = [
        FileEntry(path, len(data), hashlib.sha256(data).hexdigest())
        for path, data in files_of(directory).items()
    ]
    assert model.digest == content_digest(entries)
    assert model.path.endswith("/" + key.rpartition("/")[2])


def test_an_empty_file_is_put(client: Client, key: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    model = client.put(key, tmp_path / "empty")
    assert [(one.path, one.bytes) for one in model.files] == [("empty", 0)]


def test_what_a_put_says_of_its_body_holds(client: Client, key: str) -> None:
    with pytest.raises(DigestMismatch) as wrong:
        client.put(key, WEIGHTS, sha256="0" * 64)
    assert wrong.value.actual == hashlib.sha256(WEIGHTS).hexdigest()
    model = client.put(key, WEIGHTS, create_only=True)
    with pytest.raises(Exists):
        client.put(key, b"other", create_only=True)
    assert client.put(key, WEIGHTS, unless=model.digest).published_at == model.published_at


def test_a_body_that_is_refused_is_refused_before_it_is_read(
    client: Client, key: str, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(CAPACITY + 1_000_000)
    with pytest.raises(TooLarge) as refused:
        client.put(key, large)
    assert refused.value.bytes > refused.value.capacity == CAPACITY
    # The connection is good for more.
    assert client.status().arrivals == 0


def test_a_put_that_breaks_off_leaves_nothing(
    client: Client, key: str, directory: Path, daemon: Daemon
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.put(key, directory, progress=fail)
    assert daemon.client.get("/v1/uploads")["uploads"] == []
    assert client.get(key) is None


def test_a_file_that_grows_meanwhile_is_not_put(client: Client, key: str, tmp_path: Path) -> None:
    place = tmp_path / "weights"
    place.write_bytes(b"half of it")

    def grow(_: object) -> None:
        os.truncate(place, 20)

    with pytest.raises(Unsendable, match="longer than the 10 bytes"):
        client.put(key, place, progress=grow)
    assert client.get(key) is None


def test_a_put_tells_how_far_it_is(client: Client, key: str, directory: Path) -> None:
    told: list[Sent] = []
    client.put(key, directory, progress=told.append)
    size = sum(len(data) for data in files_of(directory).values())
    assert [one.whole for one in told] == [size] * len(told)
    assert [one.bytes for one in told] == sorted(one.bytes for one in told)
    assert told[-1].bytes == size


@pytest.mark.parametrize("kind", TWINS)
def test_where_the_daemons_directory_is_not_to_be_seen_it_is_sent(
    daemon: Daemon, kind: str, key: str, directory: Path, tmp_path: Path
) -> None:
    told: list[Sent] = []
    with twin(kind, daemon.socket, root=tmp_path / "elsewhere") as client:
        with pytest.raises(NotTheSameDirectory):
            client.put(key, directory, progress=told.append)
        assert client.peek(key)
    assert not told
    assert daemon.client.get("/v1/uploads")["uploads"] == []


@pytest.mark.parametrize("what", ["nothing", "fifo", "empty directory", "loop"])
def test_what_no_model_can_be_is_not_sent(
    client: Client, key: str, tmp_path: Path, what: str
) -> None:
    place = tmp_path / "model"
    if what == "fifo":
        os.mkfifo(place)
    elif what == "empty directory":
        place.mkdir()
    elif what == "loop":
        place.mkdir()
        (place / "again").symlink_to(place)
    with pytest.raises(Unsendable) as refused:
        client.put(key, place)
    assert refused.value.path.startswith(str(place))
    assert client.get(key) is None


def test_models_are_listed_with_all_pages(
    client: Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weightd.client.flows.PAGE", 2)
    keys = [f"{key}/{number}" for number in range(5)]
    for each in keys:
        client.put(each, b"x")
    assert [one.key for one in client.models() if one.key.startswith(key + "/")] == keys
    for each in keys:
        client.delete(each)
    gone = [one for one in client.evictions() if one.key in keys]
    assert [(one.key, one.reason) for one in gone] == [(each, "request") for each in keys]
    assert client.evictions(after=gone[-1].sequence) == []


def test_a_pin_keeps_a_model(client: Client, key: str) -> None:
    model = client.put(key, b"x")
    pinned = client.pin("replica:1", key, ttl=60)
    assert pinned.until == pytest.approx(pinned.since + 60, abs=1)
    assert pinned.model.pins == 1
    with pytest.raises(Pinned) as kept:
        client.delete(key)
    assert [one.holder for one in kept.value.holders] == ["replica:1"]
    mine = [one for one in client.pins() if one.key == key]
    assert [(one.kind, one.holder, one.ttl) for one in mine] == [("pin", "replica:1", 60.0)]
    assert client.pin("replica:1", key, ttl="forever").until is None
    client.unpin("replica:1", key)
    with pytest.raises(NotPinned):
        client.unpin("replica:1", key)
    client.put(key, b"y")
    with pytest.raises(GenerationGone):
        client.pin("replica:1", key, generation=model.generation)


def test_a_fetch_tells_how_far_it_is(client: Client, key: str, daemon: Daemon) -> None:
    origin = daemon.root.parent / "origins" / key.rpartition("/")[2]
    origin.mkdir()
    (origin / "weights").write_bytes(WEIGHTS)
    told: list[Job] = []
    source = f"file://{origin}"
    model = client.fetch(key, source, holder="replica:2", ttl=60, progress=told.append)
    assert files_of(Path(model.path)) == {"weights": WEIGHTS}
    assert (model.source, model.pins) == (source, 1)
    assert [one.path for one in model.files] == ["weights"]
    for job in told:
        assert (job.key, job.source) == (key, source)
    # It is here now: no job.
    before, fetched = client.status(), len(told)
    assert client.fetch(key, [source], progress=told.append).generation == model.generation
    assert len(told) == fetched
    assert client.status().hits == before.hits + 1
    [job] = [one for one in client.jobs() if one.key == key]
    assert client.job(job.id).state == "done"
    client.cancel(job.id)
    with pytest.raises(UnknownFetch):
        client.job(job.id)


def test_an_admission_says_what_would_become_of_an_arrival(client: Client) -> None:
    verdict = client.admission(CAPACITY + 1)
    assert (verdict.verdict, verdict.capacity) == ("too-large", CAPACITY)
    assert client.admission(1).verdict in ("fits", "evicts")


def test_status_has_every_figure(client: Client, daemon: Daemon) -> None:
    status = client.status()
    assert (status.state, status.root) == ("ready", str(daemon.root))
    assert set(daemon.client.status()) == set(status._fields)


def test_events_are_told_as_they_happen(client: Client, key: str) -> None:
    before = client.status().started_at
    client.put(f"{key}/first", b"x")
    events = client.events(after=0)
    seen = []
    for event in events:
        seen.append(event)
        if event.data.get("key") == f"{key}/first":
            break
    events.close()  # type: ignore[attr-defined]
    assert seen[-1].at >= before
    assert sorted(one.seq for one in seen) == [one.seq for one in seen]


def test_a_put_waits_for_room(client: Client, key: str) -> None:
    size = CAPACITY - 5_000_000
    client.put(f"{key}/a", bytes(size))
    client.pin("replica:3", f"{key}/a", ttl=1.0)
    # The lease lapses meanwhile.
    model = client.put(f"{key}/b", bytes(size), wait=30)
    assert model.bytes == size
    client.delete(f"{key}/b")
    until(lambda: client.status().doomed_bytes == 0)


def test_a_fetch_waits_for_one_from_elsewhere(client: Client, key: str) -> None:
    with http_origin() as origin, ThreadPoolExecutor(1) as pool:
        first = origin.listing("first", weights=b"weights")
        origin.flowing.clear()
        coming = pool.submit(client.fetch, key, first)
        until(lambda: [one for one in client.jobs() if one.key == key])
        with pytest.raises(Busy) as busy:
            client.fetch(key, f"{origin.url}/second.json")
        assert busy.value.job == client.jobs()[0].id
        told: list[Job] = []
        second = f"{origin.url}/second.json"
        waiting = pool.submit(client.fetch, key, second, wait=60, progress=told.append)
        origin.flowing.set()
        assert coming.result().source == first
        # What came is what is here, whoever brought it.
        assert waiting.result().source == first


def test_a_fetch_waits_for_an_origin_that_comes_back(client: Client, key: str) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=b"weights")
        origin.refusals["/m.json"] = (503, {"Retry-After": "1"})
        with pytest.raises(OriginFailed) as failed:
            client.fetch(key, source)
        assert failed.value.retryable
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.fetch, key, source, wait=120)
            del origin.refusals["/m.json"]
            assert waiting.result().bytes == len(b"weights")
