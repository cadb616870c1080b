"""``history.db``: recency, frequency, the eviction journal, fetches.  Disposable.

Losing it costs the order of eviction and the fetches under way, not a model.  A
damaged one is set aside
and an empty one begun; where none can be had (the disk is full) it is kept in
memory.  `HistoryDatabase.lost` says so.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

from weightd.errors import InvalidKey, IoError, RootUnusable
from weightd.model import Eviction, EvictionReason, GenerationId, Key
from weightd.store import database
from weightd.store.faults import NoSpace, reported

log = logging.getLogger(__name__)

JOURNAL_MAX: Final = 100_000
"""Evictions kept; the oldest go first."""

_SCHEMAS: Final = (
    (
        """CREATE TABLE recency (
            key TEXT NOT NULL, digest TEXT NOT NULL, sequence INTEGER NOT NULL,
            last_used REAL NOT NULL, hits INTEGER NOT NULL,
            PRIMARY KEY (key, digest)) WITHOUT ROWID""",
        """CREATE TABLE evictions (
            sequence INTEGER PRIMARY KEY, key TEXT NOT NULL, digest TEXT NOT NULL,
            bytes INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL, idle REAL NOT NULL,
            beneficiary TEXT)""",
    ),
    (
        """CREATE TABLE fetches (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
            record TEXT NOT NULL, ended_at REAL)""",
    ),
)
"""What each version of the schema added to the one before it, from version 1 on."""

SCHEMA_VERSION: Final = len(_SCHEMAS)

_Answer = TypeVar("_Answer")


class Recency(NamedTuple):
    """How recently and often a generation was used.

    ``sequence`` orders uses without a clock, a larger one being later;
    ``last_used`` is in seconds since the epoch.
    """

    sequence: int
    last_used: float
    hits: int


@dataclass(frozen=True, slots=True)
class StoredFetch:
    """A fetch as it is written down; ``record`` is the caller's own JSON, not looked into.

    ``ended_at`` is in seconds since the epoch, None while it is under way.
    """

    id: str
    key: str
    record: str
    ended_at: float | None


class HistoryDatabase:
    """The disposable memory of a root.  Its methods block; any thread may call them.

    ``lost`` says why there is no earlier database to go by, None when all is well.
    """

    def __init__(self, path: Path) -> None:
        """Open or begin the database; one of a newer schema is set aside like a damaged one."""
        self.lost: str | None = None
        self._path = path
        self._using = threading.Lock()
        self._connection = self._open()

    def load(self) -> dict[GenerationId, Recency]:
        """What is remembered of each generation.  Raises IoError."""
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT key, digest, sequence, last_used, hits FROM recency"
            ).fetchall()
        )
        recency = {}
        for key, digest, *rest in rows:
            try:
                recency[GenerationId(Key.parse(key), digest)] = Recency(*rest)
            except InvalidKey:
                continue
        return recency

    def flush(
        self,
        recency: Mapping[GenerationId, Recency],
        gone: Iterable[GenerationId],
        evictions: Sequence[Eviction],
    ) -> None:
        """Remember uses, forget ``gone``, append to the journal, in one transaction.

        Raises IoError; nothing was remembered then, and the same may be asked again.
        """
        used = [(str(one.key), one.digest, *entry) for one, entry in recency.items()]
        forgotten = [(str(one.key), one.digest) for one in gone]
        journal = [_eviction_row(eviction) for eviction in evictions]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO recency VALUES (?,?,?,?,?)", used)
            connection.executemany("DELETE FROM recency WHERE key = ? AND digest = ?", forgotten)
            connection.executemany(
                "INSERT OR REPLACE INTO evictions VALUES (?,?,?,?,?,?,?,?)", journal
            )
            if journal:
                connection.execute(
                    "DELETE FROM evictions WHERE sequence <= "
                    "(SELECT max(sequence) FROM evictions) - ?",
                    (JOURNAL_MAX,),
                )
            connection.execute("COMMIT")

        self._run(write)

    def evictions(self, limit: int, after: int | None = None) -> list[Eviction]:
        """At most ``limit`` evictions after sequence ``after``, oldest first.  Raises IoError."""
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT * FROM evictions WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (-1 if after is None else after, limit),
            ).fetchall()
        )
        return [_eviction(row) for row in rows]

    def last_eviction_sequence(self) -> int:
        """The newest eviction's sequence, 0 when there is none.  Raises IoError."""
        return self._run(
            lambda connection: int(
                connection.execute("SELECT coalesce(max(sequence), 0) FROM evictions").fetchone()[0]
            )
        )

    def fetches(self) -> list[StoredFetch]:
        """Every fetch that was put and not forgotten, the one first put before all others.

        Rows that are damaged are skipped, and logged.  Raises IoError.
        """
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT id, key, record, ended_at FROM fetches ORDER BY number"
            ).fetchall()
        )
        found = []
        for row in rows:
            try:
                found.append(_fetch(*row))
            except (InvalidKey, TypeError) as error:
                log.warning("%s: a fetch is not understood: %s", self._path.name, error)
        return found

    def put_fetch(self, stored: StoredFetch) -> None:
        """Write a fetch down, or how it stands now; durable on return.  Raises IoError."""
        row = (stored.id, stored.key, stored.record, stored.ended_at)
        self._run_durably(
            lambda connection: connection.execute(
                "INSERT INTO fetches (id, key, record, ended_at) VALUES (?,?,?,?) "
                "ON CONFLICT (id) DO UPDATE SET key = excluded.key, "
                "record = excluded.record, ended_at = excluded.ended_at",
                row,
            )
        )

    def forget_fetches(self, ids: Iterable[str]) -> None:
        """Forget fetches, those that are there; durable on return.  Raises IoError."""
        rows = [(id,) for id in ids]
        self._run_durably(
            lambda connection: connection.executemany("DELETE FROM fetches WHERE id = ?", rows)
        )

    def close(self) -> None:
        """Close the connection.  Idempotent."""
        with self._using:
            self._connection.close()

    # -- insides ---------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            return _connect(self._path)
        except sqlite3.Error as error:
            if database.is_damage(error):
                return self._begin_anew(str(error))
            return self._in_memory(str(error))
        except RootUnusable as error:
            # A rollback must not fail for what is disposable.
            return self._begin_anew(str(error))
        except IoError as error:
            return self._in_memory(error.error)

    def _begin_anew(self, reason: str) -> sqlite3.Connection:
        try:
            with reported(f"rename of {self._path.name}"):
                self.lost = f"{reason} (kept as {database.set_aside(self._path)})"
            return _connect(self._path)
        except sqlite3.Error as error:
            return self._in_memory(str(error))
        except (IoError, NoSpace) as error:
            return self._in_memory(error.error)

    def _in_memory(self, reason: str) -> sqlite3.Connection:
        self.lost = f"{reason} (kept in memory until the next start)"
        return _connect(Path(":memory:"))

    def _run_durably(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Do ``write`` in one transaction that is on stable storage when this returns."""

        def transact(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA synchronous = FULL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                write(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.rollback()
                raise
            finally:
                # Ignored inside a transaction, therefore after its end.
                connection.execute("PRAGMA synchronous = NORMAL")

        self._run(transact)

    def _run(self, work: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        """Do ``work``; on a database found damaged, once more on an empty one."""
        with self._using:
            try:
                return self._attempt(work)
            except sqlite3.Error as error:
                if not database.is_damage(error):
                    raise IoError(call=f"use of {self._path.name}", error=str(error)) from error
                self._connection.close()
                self._connection = self._begin_anew(str(error))
            try:
                return self._attempt(work)
            except sqlite3.Error as error:
                raise IoError(call=f"use of {self._path.name}", error=str(error)) from error

    def _attempt(self, work: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        try:
            return work(self._connection)
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = database.connect(path, "NORMAL")
    try:
        version = database.check_version(connection, path, SCHEMA_VERSION)
        if version < SCHEMA_VERSION:
            connection.execute("BEGIN IMMEDIATE")
            for statement in chain.from_iterable(_SCHEMAS[version:]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _fetch(id: object, key: object, record: object, ended_at: object) -> StoredFetch:
    """Raises TypeError or InvalidKey for a row that nobody put."""
    if not (isinstance(id, str) and isinstance(key, str) and isinstance(record, str)):
        raise TypeError(f"{id!r:.100} is not text throughout")
    if not (ended_at is None or isinstance(ended_at, float)):
        raise TypeError(f"{id!r:.100} ended at {ended_at!r:.100}")
    return StoredFetch(id, str(Key.parse(key)), record, ended_at)


def _eviction_row(eviction: Eviction) -> tuple[object, ...]:
    beneficiary = None if eviction.beneficiary is None else str(eviction.beneficiary)
    named = (eviction.sequence, str(eviction.key), eviction.digest, eviction.bytes)
    return (*named, eviction.reason, eviction.at, eviction.idle, beneficiary)


def _eviction(row: tuple[int, str, str, int, str, float, float, str | None]) -> Eviction:
    sequence, key, digest, size, reason, at, idle, beneficiary = row
    return Eviction(
        sequence=sequence,
        key=Key.parse(key),
        digest=digest,
        bytes=size,
        reason=cast(EvictionReason, reason),
        at=at,
        idle=idle,
        beneficiary=None if beneficiary is None else Key.parse(beneficiary),
    )
