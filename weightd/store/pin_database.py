"""``state.db``: the pins, on stable storage when a change to them returns.

Several changes go into one transaction, so that a burst of pins costs a few
flushes and not one each.

When the database was lost, its successor carries a `Loss` from the transaction
that creates it on, so that a restart does not take the empty table for no pins.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

from weightd.errors import InvalidKey, InvalidRequest, IoError, StateUnwritable
from weightd.failpoints import Reach, unarmed
from weightd.model import GenerationId, Key, Pin, parse_holder, parse_sha256
from weightd.store import database
from weightd.store.faults import PinsLost, reported

log = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 1
CHANGES_MAX: Final = 1000
"""Changes in one transaction; bounds how long the first of them waits."""

# Written and freed at each start, so that the file and its log have room for
# pins, and for ending them, when the disk is full.  The log begins anew well
# before it would outgrow that room.
_BALLAST_BYTES: Final = 1 << 20
_LOG_PAGES: Final = 128

_SCHEMA: Final = (
    """CREATE TABLE pins (
        holder TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL,
        since REAL NOT NULL, ttl REAL, until REAL, forever INTEGER NOT NULL,
        boot_id TEXT NOT NULL, uid INTEGER, PRIMARY KEY (holder, key, digest)) WITHOUT ROWID""",
    "CREATE TABLE loss (since REAL NOT NULL, reason TEXT NOT NULL)",
    "CREATE TABLE ballast (bytes BLOB)",
)
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT: Final = f"INSERT OR REPLACE INTO pins VALUES {_ROW}"
_PINS: Final = (
    "SELECT holder, key, digest, since, ttl, until, forever, boot_id, uid FROM pins "
    "ORDER BY since, holder, key, digest"
)
_REMOVE: Final = "DELETE FROM pins WHERE holder = ? AND key = ? AND digest = ?"

_Values: TypeAlias = tuple[str | float | int | None, ...]


class StoredPin(NamedTuple):
    """A pin, and the boot of the node under which it was taken or renewed."""

    pin: Pin
    boot_id: str


class Loss(NamedTuple):
    """When (seconds since the epoch) and why the pins before were lost."""

    since: float
    reason: str


class PinChange(NamedTuple):
    """One change to what is recorded; ``name`` is that of its failpoints, "" for none."""

    name: str
    statement: str
    values: _Values

    @classmethod
    def put(cls, pin: Pin, boot_id: str) -> Self:
        """Keep a pin, or what it was renewed to."""
        generation = pin.generation
        lease = (pin.since, pin.ttl, pin.until, int(pin.forever), boot_id, pin.uid)
        return cls("pin", _PUT, (pin.holder, str(generation.key), generation.digest, *lease))

    @classmethod
    def remove(cls, holder: str, generation: GenerationId) -> Self:
        """Forget a pin; one that is not there is no error."""
        return cls("unpin", _REMOVE, (holder, str(generation.key), generation.digest))

    @classmethod
    def accept_loss(cls) -> Self:
        """Forget that pins were lost."""
        return cls("", "DELETE FROM loss", ())


class PinDatabase:
    """The one writer and reader of ``state.db``.  Made by `open`.  Its calls block."""

    def __init__(self, connection: sqlite3.Connection, reach: Reach) -> None:
        self._connection = connection
        self._reach = reach
        self._using = threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        reach: Reach = unarmed,
        *,
        expected: bool = False,
        loss: Loss | None = None,
    ) -> Self:
        """Open the pins at ``path``.

        ``expected`` says that there must have been a database, because there
        are models.  Raises PinsLost when it is missing then, or damaged (and
        set aside): open again with ``expected=False`` and the ``loss`` to be
        remembered.  Raises IoError, and RootUnusable for a newer schema.
        """
        try:
            connection = _open(path, expected=expected, loss=loss)
        except sqlite3.Error as error:
            if not database.is_damage(error):
                raise IoError(call=f"open of {path.name}", error=str(error)) from error
            raise _lost(path, str(error)) from error
        return cls(connection, reach)

    def load(self) -> list[StoredPin]:
        """Every pin.  Raises IoError."""
        rows = self._rows(_PINS)
        return [_stored_pin(row) for row in rows]

    def loss(self) -> Loss | None:
        """The loss nobody has accepted yet.  Raises IoError."""
        rows = self._rows("SELECT since, reason FROM loss")
        return Loss(_seconds(rows[0][0]), str(rows[0][1])) if rows else None

    def apply(self, changes: Sequence[PinChange]) -> None:
        """Make some changes, `CHANGES_MAX` at most, in their order: all of them or none.

        Raises StateUnwritable.
        """
        names = sorted({change.name for change in changes if change.name})
        try:
            with self._using:
                self._commit(changes, names)
            for name in names:
                self._reach(f"{name}.committed")
        except sqlite3.Error as error:
            self._roll_back()
            raise StateUnwritable(error=str(error)) from error
        except Exception as error:
            # Whatever it is, those who wait are told.
            log.error("a pin could not be written; this is a bug", exc_info=error)
            self._roll_back()
            raise StateUnwritable(error=repr(error)) from error

    def close(self) -> None:
        """End the connection, after which nothing can be changed.  Idempotent."""
        self._connection.close()

    # -- insides ---------------------------------------------------------------

    def _rows(self, statement: str) -> list[tuple[object, ...]]:
        try:
            with self._using:
                return self._connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise IoError(call="read of state.db", error=str(error)) from error

    def _commit(self, changes: Sequence[PinChange], names: Sequence[str]) -> None:
        # Each call waits for the interpreter, which the loop's thread may have: as few as can be.
        calls = list(_calls(changes))
        if len(calls) > 1:
            self._connection.execute("BEGIN IMMEDIATE")
            for call in calls:
                self._connection.execute(*call)
            calls = [("COMMIT", ())]
        for name in names:
            self._reach(f"{name}.before-commit")
        # One that is alone is a transaction by itself.
        self._connection.execute(*calls[0])

    def _roll_back(self) -> None:
        with self._using:
            try:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                # SQLite has rolled back by itself then; the next BEGIN tells if not.
                return


def _calls(changes: Sequence[PinChange]) -> Iterator[tuple[str, _Values]]:
    """Statements with their values, in order: pins that are put one after another are put by one.

    Removals are not, since SQLite would look for several of them in the whole table.
    """
    for statement, run in groupby(changes, key=lambda change: change.statement):
        rows = [change.values for change in run]
        if statement == _PUT:
            yield statement + f", {_ROW}" * (len(rows) - 1), tuple(chain.from_iterable(rows))
        else:
            yield from ((statement, values) for values in rows)


def _open(path: Path, *, expected: bool, loss: Loss | None) -> sqlite3.Connection:
    if expected and not path.exists():
        raise PinsLost(f"{path.name} is missing", None)
    connection = database.connect(path, "FULL")
    try:
        damage = database.damage_of(connection)
        if damage is None and database.check_version(connection, path, SCHEMA_VERSION) == 0:
            damage = "it is empty" if expected else None
            if damage is None:
                _create(connection, loss)
        if damage is None:
            damage = _row_damage(connection)
        if damage is None:
            _make_room(connection)
        if damage is not None:
            connection.close()
            raise _lost(path, damage)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection, loss: Loss | None) -> None:
    """Make the tables and record the loss in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        connection.execute(statement)
    if loss is not None:
        connection.execute("INSERT INTO loss VALUES (?, ?)", loss)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _make_room(connection: sqlite3.Connection) -> None:
    """Take the room that later commits need; on a disk that is full already, do without."""
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}").fetchall()
    try:
        connection.execute("INSERT INTO ballast VALUES (randomblob(?))", (_BALLAST_BYTES,))
        connection.execute("DELETE FROM ballast")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise


def _row_damage(connection: sqlite3.Connection) -> str | None:
    """A row that is no pin is damage: what cannot be read is not taken for nothing."""
    try:
        for row in connection.execute(_PINS):
            _stored_pin(row)
        connection.execute("SELECT since, reason FROM loss").fetchall()
    except (ValueError, TypeError, InvalidKey, InvalidRequest) as error:
        return f"a row is not a pin: {error}"
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return str(error)  # a table or a column is missing
    return None


def _stored_pin(row: tuple[object, ...]) -> StoredPin:
    holder, key, digest, since, ttl, until, forever, boot_id, uid = row
    pin = Pin(
        holder=parse_holder(str(holder)),
        generation=GenerationId(Key.parse(str(key)), parse_sha256(str(digest))),
        since=_seconds(since),
        ttl=None if ttl is None else _seconds(ttl),
        until=None if until is None else _seconds(until),
        forever=bool(forever),
        uid=None if uid is None else _uid(uid),
    )
    return StoredPin(pin, str(boot_id))


def _uid(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no user")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a time")
    return float(value)


def _lost(path: Path, reason: str) -> PinsLost:
    with reported(f"rename of {path.name}"):
        return PinsLost(reason, database.set_aside(path))
