"""Memory: what thousands of puts leave behind, and what the daemon takes with many models."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import Connection, request
from tests.bench.figures import Row
from tests.bench.place import room_in_memory
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB
from tests.bench.startup import key_of, lay_out, make_root

GROWN_ROUNDS: Final = 2
"""Rounds of puts at most: they take minutes, and differ little."""

MODELS: Final = 1000
MOST_BYTES: Final = 150e6
"""What the daemon may take with so many models."""

_BYTES: Final = 4096
_KEPT: Final = 256
"""Models that fit beside each other: from then on every put evicts one."""

_FILLING: Final = 1.2
"""Puts before the others, of as many, until whatever remembers so many evictions is full.

The longest memory is `weightd.cache.counters.REGRET_REMEMBERED`, of 10,000.
"""


def measure(bench: Bench) -> list[Row]:
    """Resident bytes of a daemon whose files are in memory of their own, and not counted."""
    puts = bench.sizes.puts
    first = int(puts * _FILLING)
    growth = Row(
        "Memory of the daemon",
        f"after {puts:,} small puts more",
        f"after {first:,} small puts",
        "MB",
        aim="<= 1.01",
    )
    models = Row(
        "Memory of the daemon", f"with {MODELS:,} models", "what it may take", "MB", aim="<= 1"
    )
    with ExitStack() as stack:
        place = stack.enter_context(room_in_memory(bench.place, "memory"))
        full = place / "models"
        make_root(full, bench.sockets / "first.sock")
        for number in range(MODELS):
            lay_out(full, number, 2)
        for number in range(bench.sizes.rounds):
            if number < GROWN_ROUNDS:
                growth.add(*_grown(bench, place / f"puts-{number}", first, puts))
            models.add(_with_models(bench, full), MOST_BYTES)
            bench.say(f"memory: round {number + 1} of {bench.sizes.rounds}")
    return [growth, models]


def _grown(bench: Bench, root: Path, first: int, puts: int) -> tuple[int, int]:
    """Resident after all the puts, and after the first of them; the models are as many."""
    door = bench.sockets / "memory.sock"
    with processes.daemon(root, door, _KEPT * _BYTES) as server, Connection(door) as connection:
        _put(connection, range(first))
        before = server.resident()
        _put(connection, range(first, first + puts))
        return server.resident(), before


def _put(connection: Connection, numbers: range) -> None:
    for number in numbers:
        key = f"bench/small-{number}"
        head = request("PUT", f"/v1/models/{key}", _BYTES)
        connection.exchange(head + key.encode().ljust(_BYTES))


def _with_models(bench: Bench, root: Path) -> int:
    """Resident once every model was listed and looked up."""
    door = bench.sockets / "models.sock"
    with processes.daemon(root, door, GIB) as server, Connection(door) as connection:
        connection.exchange(request("GET", f"/v1/models?limit={MODELS}"))
        for number in range(MODELS):
            connection.exchange(request("GET", f"/v1/models/{key_of(number)}"))
        return server.resident()
