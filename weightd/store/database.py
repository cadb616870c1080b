"""What both SQLite files share: opening, telling damage from trouble, setting aside."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final, Literal

from weightd.errors import IoError, RootUnusable

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SUFFIXES: Final = ("", "-wal", "-shm")


def connect(path: Path, synchronous: Literal["FULL", "NORMAL"]) -> sqlite3.Connection:
    """Open a database in WAL mode, transactions begun by hand, by this connection alone.

    Alone, because the index of the log is then kept in memory: no -shm file
    that a full disk could refuse.  Raises sqlite3.Error, IoError.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise IoError(call=f"open of {path.name}", error="it is not a regular file; move it away")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        connection.close()
        raise
    return connection


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file's content is bad, as against a disk that is full or failing."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def damage_of(connection: sqlite3.Connection) -> str | None:
    """What SQLite's own check finds wrong, None when it is sound.  Raises sqlite3.Error."""
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return None if answer == "ok" else str(answer)


def check_version(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """The schema's version, 0 for a new file.  Raises RootUnusable for a newer one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > known:
        raise RootUnusable(
            f"{path} has schema {version}, and this weightd reads up to {known}; "
            "run the release that wrote it"
        )
    return int(version)


def set_aside(path: Path) -> str:
    """Rename a damaged database and its companions out of the way; its new name.

    Raises OSError.
    """
    number = 1
    while path.with_name(f"{path.name}.lost-{number}").exists():
        number += 1
    aside = path.with_name(f"{path.name}.lost-{number}")
    # The companions first: a database without its log must never be found in its place.
    for suffix in reversed(_SUFFIXES):
        try:
            os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        except FileNotFoundError:
            continue
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return aside.name
