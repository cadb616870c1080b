"""The files that tell others on the node which models are here."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cache.node import running as running_cache
from tests.polling import until
from tests.system.daemon import Daemon, running
from weightd.daemon import residency
from weightd.daemon.residency import LABEL_BYTES_MOST, node_labels, textfile
from weightd.store import replace_file

_HEAD = re.compile(r"# \+expiry-time=(\S+)\n")


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Where the labels and the series go: directories of others."""
    for name in ("features.d", "textfile"):
        (tmp_path / name).mkdir()
    return tmp_path / "features.d" / "weightd", tmp_path / "textfile" / "weightd.prom"


@pytest.fixture
def daemon(root: Path, places: tuple[Path, Path]) -> Iterator[Daemon]:
    labels, series = places
    options = ("--node-labels", str(labels), "--textfile", str(series))
    with running(root, capacity=100_000, options=options) as daemon:
        yield daemon


def labelled(path: Path) -> list[str]:
    """The labels of a feature file that holds for about an hour."""
    text = path.read_text()
    head = _HEAD.match(text)
    assert head, text
    left = datetime.fromisoformat(head[1]) - datetime.now(UTC)
    assert 3000 < left.total_seconds() <= 3600
    return text[head.end() :].splitlines()


def put(daemon: Daemon, key: str, size: int) -> None:
    assert daemon.client.call("PUT", f"/v1/models/{key}?file=f", bytes(size)).status == 201


def test_both_are_written_at_the_start_and_as_models_come_and_go(
    daemon: Daemon, places: tuple[Path, Path]
) -> None:
    labels, series = places
    # Ready: they are there, and say that nothing is.
    until(series.exists)
    assert labelled(labels) == []
    put(daemon, "org/m@v1", 60_000)
    put(daemon, "org/small", 5_000)
    both = ["weightd.io/model.org_m__v1=true", "weightd.io/model.org_small=true"]
    until(lambda: labelled(labels) == both)
    until(lambda: 'weightd_model_bytes{key="org/m@v1"} 60000\n' in series.read_text())
    for path in places:
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    # One goes for the room of another, one by hand.
    put(daemon, "org/next", 80_000)
    assert daemon.client.call("DELETE", "/v1/models/org/small").status == 204
    until(lambda: labelled(labels) == ["weightd.io/model.org_next=true"])
    # Models stay when the daemon stops, and so does what is said of them.
    put(daemon, "org/last", 4_000)
    assert daemon.stop() == 0
    assert labelled(labels) == ["weightd.io/model.org_last=true", "weightd.io/model.org_next=true"]
    assert [len(os.listdir(path.parent)) for path in places] == [1, 1]


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_series(daemon: Daemon, places: tuple[Path, Path]) -> None:
    put(daemon, "org/m.x_y-z@v1", 6_000)
    until(lambda: "org/m.x_y-z@v1" in places[1].read_text())
    with places[1].open("rb") as file:
        ran = subprocess.run(
            ["promtool", "check", "metrics"],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_reader_sees_a_whole_file_or_the_one_before(
    daemon: Daemon, places: tuple[Path, Path]
) -> None:
    labels, series = places
    until(series.exists)
    stop, broken, seen = threading.Event(), list[str](), set[str]()

    def read() -> None:
        while not stop.is_set():
            for path in places:
                text = path.read_text()
                seen.add(text)
                if not text.startswith("# ") or not text.endswith("\n"):
                    broken.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(3):
            put(daemon, f"org/m{number}", 1_000)
            until(lambda n=number: f"m{n}=true" in labels.read_text())  # type: ignore[misc]
    finally:
        stop.set()
        reader.join()
    assert not broken
    assert len(seen) >= 4


def test_a_directory_that_cannot_be_written_harms_nothing_and_is_tried_again(
    root: Path, tmp_path: Path
) -> None:
    place = tmp_path / "not-yet" / "weightd"
    with running(root, capacity=100_000, options=("--node-labels", str(place))) as daemon:
        put(daemon, "org/m", 1_000)
        until(lambda: "node_labels" in daemon.said())
        put(daemon, "org/n", 1_000)
        assert daemon.client.status()["state"] == "ready"
        place.parent.mkdir()
        until(place.exists)
        until(lambda: "is written again" in daemon.said())
        assert labelled(place) == ["weightd.io/model.org_m=true", "weightd.io/model.org_n=true"]
        # Once, however often it was tried.
        assert daemon.said().count("cannot be written") == 1
        assert f'setting=node_labels file={place} reason="No such file' in daemon.said()


def test_what_is_no_file_is_not_replaced(root: Path, places: tuple[Path, Path]) -> None:
    labels, series = places
    os.mkfifo(labels)
    series.mkdir()
    options = ("--node-labels", str(labels), "--textfile", str(series))
    with running(root, capacity=100_000, options=options) as daemon:
        until(lambda: daemon.said().count("something is there that is not a file") == 2)
        assert daemon.client.status()["state"] == "ready"
    assert stat.S_ISFIFO(labels.lstat().st_mode)
    assert os.listdir(labels.parent) == ["weightd"]
    assert os.listdir(series.parent) == ["weightd.prom"]


def test_a_link_at_the_name_is_replaced_and_not_followed(
    root: Path, places: tuple[Path, Path]
) -> None:
    labels = places[0]
    theirs = root.parent / "theirs"
    theirs.write_text("theirs")
    labels.symlink_to(theirs)
    (labels.parent / ".weightd.new").symlink_to(theirs)
    with running(root, capacity=100_000, options=("--node-labels", str(labels))):
        until(lambda: not labels.is_symlink())
    assert labelled(labels) == []
    assert theirs.read_text() == "theirs"
    assert os.listdir(labels.parent) == ["weightd"]


def test_what_a_killed_daemon_left_is_in_nobodys_way(root: Path, places: tuple[Path, Path]) -> None:
    labels = places[0]
    (labels.parent / ".weightd.new").write_text("half")
    labels.write_text("weightd.io/model.gone=true\n")
    with running(root, capacity=100_000, options=("--node-labels", str(labels))):
        until(lambda: "gone" not in labels.read_text())
        assert os.listdir(labels.parent) == ["weightd"]


async def test_what_is_being_written_at_the_end_is_finished_before_the_last(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers at once would take the unfinished file from each other."""
    place, begun, goes_on = tmp_path / "weightd", threading.Event(), threading.Event()
    told: list[str] = []

    def slow(path: Path, data: bytes) -> None:
        told.append("begun")
        begun.set()
        assert goes_on.wait(60)
        replace_file(path, data)
        told.append("ended")

    monkeypatch.setattr(residency, "replace_file", slow)
    async with (
        running_cache(root, 10**6) as node,
        residency.Residency(node.cache, place, None).told(),
    ):
        assert await asyncio.to_thread(begun.wait, 60)
        # By then the end has begun, and a second writer would have.
        asyncio.get_running_loop().call_later(0.1, goes_on.set)
    assert told == ["begun", "ended"] * 2
    assert labelled(place) == []


def test_labels_of_the_last_used_models_where_not_all_have_room() -> None:
    models = {f"org/{'m' * 40}-{number}": 1 for number in range(2_000)}
    text = node_labels(models, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    head, *lines = text.splitlines()
    assert head == "# +expiry-time=2026-01-02T03:04:05Z"
    assert LABEL_BYTES_MOST - 100 < len(text) <= LABEL_BYTES_MOST
    newest = [f"weightd.io/model.org_{'m' * 40}-{1999 - n}=true" for n in range(len(lines))]
    assert lines == sorted(newest)
    assert len(textfile(models).splitlines()) == 2_002
