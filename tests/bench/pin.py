"""A pin, which is on stable storage when it is answered, against one durable SQLite commit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import Connection, flood, quiet, request
from tests.bench.figures import Latency, Row
from tests.bench.hit import KEY, put_model
from tests.bench.place import room
from tests.bench.scenario import Bench
from tests.bench.sizes import MIB

_ONE: Final = "A pin, one connection"
_WARM_UP: Final = 50


def measure(bench: Bench) -> list[Row]:
    """New pins, renewals, and as many clients at once, each beside commits of the same round."""
    clients = bench.sizes.clients
    commit = "SQLite commit: WAL, synchronous=FULL, one row"
    new = {
        name: Row(_ONE, f"PUT a new pin, {name}", commit, "us", aim=aim)
        for name, aim in (("p50", "<= 1.5"), ("p99", ""))
    }
    renewed = {
        name: Row(_ONE, f"PUT the same again, {name}", commit, "us") for name in ("p50", "p99")
    }
    rate = Row(
        f"{clients} clients pin at once", "pins", "the same commits, a flush each", "/s", aim=">= 4"
    )
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "pin"))
        door = bench.sockets / "pin.sock"
        stack.enter_context(processes.daemon(place / "root", door, 100 * MIB))
        put_model(door, KEY)
        crowd = [stack.enter_context(Connection(door)) for _ in range(clients)]
        rival = stack.enter_context(_database(place / "rival.db"))
        _pins(crowd[0], "warm", _WARM_UP)
        _commits(rival, "warm", _WARM_UP)
        for number in range(bench.sizes.rounds):
            _round(bench, number, crowd, rival, new, renewed, rate)
            bench.say(f"pin: round {number + 1} of {bench.sizes.rounds}")
    return [*new.values(), *renewed.values(), rate]


def _round(
    bench: Bench,
    number: int,
    crowd: list[Connection],
    rival: sqlite3.Connection,
    new: dict[str, Row],
    renewed: dict[str, Row],
    rate: Row,
) -> None:
    count = bench.sizes.pins
    commits = _commits(rival, f"r{number}", count)
    pins = Latency.of(_pins(crowd[0], f"r{number}", count))
    renewals = Latency.of(_pins(crowd[0], f"r{number}", count))
    lines = [_pin(f"crowd-{number}-{one}") for one in range(count * 4)]
    crowded = len(lines) / flood(crowd, lines)
    # Both ends of the round, so that a disk that changes meanwhile is not one side's luck.
    commits += _commits(rival, f"r{number}", count)
    theirs = Latency.of(commits)
    for rows, ours in ((new, pins), (renewed, renewals)):
        for name, row in rows.items():
            row.add(getattr(ours, name), getattr(theirs, name))
    rate.add(crowded, len(commits) / sum(commits))


def _pin(holder: str) -> bytes:
    return request("PUT", f"/v1/pins/{holder}/{KEY}")


def _pins(connection: Connection, name: str, count: int) -> list[float]:
    with quiet():
        return [connection.exchange(_pin(f"{name}-{one}")) for one in range(count)]


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE pins (holder TEXT, key TEXT, since REAL)")
        yield connection


def _commits(connection: sqlite3.Connection, name: str, count: int) -> list[float]:
    seconds = []
    with quiet():
        for one in range(count):
            begun = time.perf_counter()
            connection.execute(
                "INSERT INTO pins VALUES (?, ?, ?)", (f"{name}-{one}", KEY, time.time())
            )
            seconds.append(time.perf_counter() - begun)
    return seconds
