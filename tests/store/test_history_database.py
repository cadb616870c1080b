"""The history that may be lost: recency, the journal of evictions, fetches."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.damages import overwrite_header, truncate
from weightd.errors import IoError
from weightd.model import Eviction, GenerationId, Key
from weightd.store import HistoryDatabase, Recency, StoredFetch
from weightd.store.history_database import JOURNAL_MAX, SCHEMA_VERSION

ONE = GenerationId(Key.parse("org/m@r"), "1" * 64)
TWO = GenerationId(Key.parse("n"), "2" * 64)

VERSION_1 = f"""
CREATE TABLE recency (
    key TEXT NOT NULL, digest TEXT NOT NULL, sequence INTEGER NOT NULL,
    last_used REAL NOT NULL, hits INTEGER NOT NULL,
    PRIMARY KEY (key, digest)) WITHOUT ROWID;
CREATE TABLE evictions (
    sequence INTEGER PRIMARY KEY, key TEXT NOT NULL, digest TEXT NOT NULL,
    bytes INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL, idle REAL NOT NULL,
    beneficiary TEXT);
INSERT INTO recency VALUES ('org/m@r', '{ONE.digest}', 7, 2.5, 3);
INSERT INTO evictions VALUES (1, 'org/m@r', '{ONE.digest}', 5, 'admission', 10.5, 2.5, 'n');
PRAGMA user_version = 1;
"""
"""What the release before wrote."""

FETCHES = [
    StoredFetch("f1", "org/m@r", '{"state": "queued"}', None),
    StoredFetch("f2", "n", "{}", 5.0),
    StoredFetch("f3", "n", "not looked into", 9.25),
]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryDatabase]:
    opened = HistoryDatabase(tmp_path / "history.db")
    yield opened
    opened.close()


def eviction(sequence: int) -> Eviction:
    return Eviction(
        sequence=sequence,
        key=ONE.key,
        digest=ONE.digest,
        bytes=5,
        reason="admission",
        at=10.5,
        idle=2.5,
        beneficiary=TWO.key if sequence % 2 else None,
    )


def test_history_survives(tmp_path: Path) -> None:
    history = HistoryDatabase(tmp_path / "history.db")
    assert history.last_eviction_sequence() == 0
    history.flush({ONE: Recency(1, 2.5, 3), TWO: Recency(2, 3.5, 0)}, [], [eviction(1)])
    history.flush({ONE: Recency(3, 4.5, 4)}, [TWO], [eviction(2), eviction(3)])
    history.close()
    history = HistoryDatabase(tmp_path / "history.db")
    assert history.lost is None
    assert history.load() == {ONE: Recency(3, 4.5, 4)}
    assert history.evictions(2) == [eviction(1), eviction(2)]
    assert history.evictions(2, after=2) == [eviction(3)]
    assert history.last_eviction_sequence() == 3
    history.close()


def test_a_flush_is_whole_or_nothing(history: HistoryDatabase) -> None:
    bad = Eviction(**{field: getattr(eviction(9), field) for field in Eviction.__slots__})
    object.__setattr__(bad, "digest", None)
    with pytest.raises(IoError, match="NOT NULL"):
        history.flush({ONE: Recency(1, 2.0, 3)}, [], [bad])
    assert history.load() == {}
    history.flush({ONE: Recency(1, 2.0, 3)}, [], [eviction(9)])
    assert history.last_eviction_sequence() == 9


def test_the_journal_is_bounded(history: HistoryDatabase) -> None:
    history.flush({}, [], [eviction(number) for number in range(1, JOURNAL_MAX + 11)])
    assert [entry.sequence for entry in history.evictions(1)] == [11]
    assert history.last_eviction_sequence() == JOURNAL_MAX + 10


@pytest.mark.parametrize("damage", [overwrite_header, truncate])
def test_a_damaged_history_is_set_aside(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    path = tmp_path / "history.db"
    history = HistoryDatabase(path)
    history.flush({ONE: Recency(1, 2.0, 3)}, [], [eviction(1)])
    history.close()
    damage(path)
    history = HistoryDatabase(path)
    # What the header does not show, the first use does.
    assert history.load() == {}
    assert history.lost is not None
    assert "history.db.lost-1" in history.lost
    history.flush({TWO: Recency(1, 2.0, 3)}, [], [])
    history.close()
    history = HistoryDatabase(path)
    assert history.load() == {TWO: Recency(1, 2.0, 3)}
    history.close()


def test_a_newer_history_is_set_aside(tmp_path: Path) -> None:
    """It is disposable: a rollback must not fail for it."""
    path = tmp_path / "history.db"
    HistoryDatabase(path).close()
    newer = SCHEMA_VERSION + 1
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()
    history = HistoryDatabase(path)
    assert history.lost is not None
    assert f"schema {newer}" in history.lost
    assert (tmp_path / "history.db.lost-1").exists()
    history.flush({ONE: Recency(1, 2.5, 3)}, [], [])
    assert history.load() == {ONE: Recency(1, 2.5, 3)}
    history.close()


def test_a_history_of_the_release_before_is_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.close()
    for fetches in ([], FETCHES[:1]):
        history = HistoryDatabase(path)
        assert history.lost is None
        assert history.load() == {ONE: Recency(7, 2.5, 3)}
        assert history.evictions(9) == [eviction(1)]
        assert history.fetches() == fetches
        history.put_fetch(FETCHES[0])
        history.close()
    assert [one.name for one in tmp_path.iterdir()] == ["history.db"]


def test_fetches_survive_in_the_order_in_which_they_were_first_put(tmp_path: Path) -> None:
    history = HistoryDatabase(tmp_path / "history.db")
    assert history.fetches() == []
    for stored in FETCHES:
        history.put_fetch(stored)
    changed = StoredFetch("f1", "org/m@r", '{"state": "done"}', 11.0)
    history.put_fetch(changed)
    history.forget_fetches(["f2", "unknown"])
    history.forget_fetches([])
    history.close()
    history = HistoryDatabase(tmp_path / "history.db")
    assert history.fetches() == [changed, FETCHES[2]]
    history.close()


def test_a_fetch_is_in_the_log_when_it_is_said_to_be(tmp_path: Path) -> None:
    """Every other connection is kept out, so a copy of the files shows what a crash would leave."""
    history = HistoryDatabase(tmp_path / "history.db")
    history.put_fetch(FETCHES[0])
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / f"history.db{suffix}", crashed)
    history.close()
    found = HistoryDatabase(crashed / "history.db")
    assert found.fetches() == [FETCHES[0]]
    found.close()


def test_only_what_must_be_durable_is_waited_for(history: HistoryDatabase) -> None:
    """Recency may be lost and is not worth a flush of the disk; a fetch is."""
    told: list[str] = []
    connection = history._connection
    connection.set_trace_callback(told.append)
    history.put_fetch(FETCHES[0])
    assert told[0].endswith("= FULL")
    assert told[-1].endswith("= NORMAL")
    assert connection.execute("PRAGMA synchronous").fetchone() == (1,)


def test_a_fetch_that_cannot_be_written_changes_nothing(history: HistoryDatabase) -> None:
    history.put_fetch(FETCHES[0])
    bad = StoredFetch("f1", "n", None, None)  # type: ignore[arg-type]
    with pytest.raises(IoError, match="NOT NULL"):
        history.put_fetch(bad)
    assert history.fetches() == FETCHES[:1]
    assert history._connection.execute("PRAGMA synchronous").fetchone() == (1,)


def test_damaged_fetches_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.db"
    history = HistoryDatabase(path)
    for stored in FETCHES:
        history.put_fetch(stored)
    history.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE fetches SET key = '../x' WHERE id = 'f1'")
    connection.execute("UPDATE fetches SET record = x'00ff' WHERE id = 'f2'")
    connection.execute("INSERT INTO fetches VALUES (9, 'f9', 'n', '{}', 'yesterday')")
    connection.commit()
    connection.close()
    history = HistoryDatabase(path)
    assert history.fetches() == [FETCHES[2]]
    assert len(caplog.records) == 3
    history.forget_fetches(["f1"])
    assert history.fetches() == [FETCHES[2]]
    history.close()


def test_fetches_are_begun_anew_with_a_history_found_damaged(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    history = HistoryDatabase(path)
    history.put_fetch(FETCHES[0])
    history.close()
    truncate(path)
    history = HistoryDatabase(path)
    history.put_fetch(FETCHES[1])
    assert history.fetches() == [FETCHES[1]]
    assert history.lost is not None
    history.close()
