"""Many models, pins and connections: what each tenfold of models costs, and the worst request."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench import processes
from tests.bench.client import (
    Connection,
    Unexpected,
    call,
    flood,
    post,
    quiet,
    request,
    take_turns,
    times,
)
from tests.bench.figures import Row
from tests.bench.place import room_in_memory
from tests.bench.processes import Server
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB
from tests.bench.startup import key_of, lay_out, make_root
from tests.bench.turns import order
from weightd.wire.fields import LIMIT_MAX

MOST_SECONDS: Final = 0.05
"""What any one request may take."""

_FEWEST: Final = 10
_EMPTY: Final = "empty"
_FILES: Final = 2
_BYTES: Final = 8192
"""Of a model that is put: in blocks, as much as one of those that are laid out."""

_REPEATED: Final = 20
_IN_TURN: Final = 3
_CLIENTS: Final = 16

_START: Final = "start-up"
_MEMORY: Final = "resident memory once ready"
_PAGE: Final = "GET a page of the list"
_WALK: Final = "GET every page of the list"
_LARGEST: Final = "GET the largest page there is"
_METRICS: Final = "GET /metrics"
_CHOICE: Final = "a dry run that evicts one"
_PUT: Final = "PUT that evicts one"
_LOOKUP: Final = "GET a record, each connection in turn"
_UNITS: Final = {_START: "s", _MEMORY: "MB"}
_ALL: Final = (_START, _MEMORY, _PAGE, _LARGEST, _WALK, _METRICS, _CHOICE, _PUT, _LOOKUP)


class Comparison:
    """Figures at every count of models, and the rows of the last tenfold."""

    def __init__(self, bench: Bench) -> None:
        sizes = bench.sizes
        self.counts = _tenfolds(sizes.scale)
        before, last = self.counts[-2:]
        scenario = f"{last:,} models, {sizes.held:,} pins, {sizes.connections} connections"
        # None may grow faster than n log n.
        aim = f"<= {last / before * math.log(last) / math.log(before):.3g}"
        rival = f"with {before:,} models"
        self._rows = {
            what: Row(scenario, what, rival, _UNITS.get(what, "ms"), aim=aim) for what in _ALL
        }
        self._worst = Row(
            scenario, "the worst of all requests", "what it may take", "ms", aim="<= 1"
        )
        self._series: dict[str, dict[int, list[float]]] = {
            what: {count: [] for count in self.counts} for what in _ALL
        }

    @property
    def rows(self) -> list[Row]:
        return [*self._rows.values(), self._worst]

    def add(self, looks: dict[int, dict[str, list[float]]]) -> str:
        """Take a round: at each count every time of every thing; answers what was slowest."""
        slowest = (0.0, "", 0)
        for count, look in looks.items():
            for what, took in look.items():
                self._series[what][count].append(sum(took) if what == _WALK else median(took))
                if what not in _UNITS:
                    slowest = max(slowest, (max(took), what, count))
        before, last = self.counts[-2:]
        for what, row in self._rows.items():
            row.add(self._series[what][last][-1], self._series[what][before][-1])
        self._worst.add(slowest[0], MOST_SECONDS)
        return f"{slowest[1]} with {slowest[2]:,} models, {slowest[0] * 1e3:.1f} ms"

    def growth(self) -> list[str]:
        """One line for each figure: what it is at every count, and how it grows."""
        counts = ", ".join(f"{count:,}" for count in self.counts)
        lines = [f"At {counts} models, and as a power of their number in the last tenfold:"]
        for what, row in self._rows.items():
            shown = ", ".join(row.shown(figures) for figures in self._series[what].values())
            lines.append(f"  {what}: {shown}; {math.log10(median(row.ratios)):.2f}")
        return lines


def measure(bench: Bench) -> list[Row]:
    """Medians at ten models, a hundred, and so on; a row is of the last tenfold.

    Every daemon is full, and half of its models, the longest unused ones, are
    pinned: the choice of a victim has to pass by all of them.  Files are in
    memory, so that what is measured is the daemon and not a disk.
    """
    comparison = Comparison(bench)
    with ExitStack() as stack:
        place = stack.enter_context(room_in_memory(bench.place, "scale"))
        bench.say(f"scale: making {sum(comparison.counts):,} models")
        make_root(place / _EMPTY, bench.sockets / "make.sock")
        roots = {count: _make(bench, place / str(count), count) for count in comparison.counts}
        for number in range(bench.sizes.rounds):
            worst = comparison.add(
                {
                    count: dict(_look(bench, roots[count], str(number)))
                    for count in order(comparison.counts, number)
                }
            )
            bench.say(f"scale: round {number + 1} of {bench.sizes.rounds}, slowest: {worst}")
    bench.notes.extend(comparison.growth())
    return comparison.rows


def _tenfolds(most: int) -> list[int]:
    """Two counts at least; each is ten times the one before, and the last is ``most``."""
    counts = [most, most // 10]
    while counts[-1] >= 10 * _FEWEST:
        counts.append(counts[-1] // 10)
    return counts[::-1]


@dataclass(frozen=True, slots=True)
class _Root:
    """A directory that is full: what it has is its capacity."""

    path: Path
    capacity: int


def _make(bench: Bench, path: Path, count: int) -> _Root:
    """Models, of which the half that is longest unused is pinned."""
    door = bench.sockets / "make.sock"
    shutil.copytree(path.parent / _EMPTY, path)
    for number in range(count):
        lay_out(path, number, _FILES)
    half = count // 2
    with ExitStack() as stack:
        stack.enter_context(processes.daemon(path, door, 100 * GIB))
        crowd = [stack.enter_context(Connection(door)) for _ in range(_CLIENTS)]
        held = range(bench.sizes.held)
        flood(crowd, [request("PUT", f"/v1/pins/one-{n}/{key_of(n % half)}") for n in held])
        flood(crowd, [request("GET", f"/v1/models/{key_of(n)}") for n in range(half, count)])
        return _Root(path, call(door, "GET", "/v1/status")["used_bytes"])


def _look(bench: Bench, root: _Root, name: str) -> Iterator[tuple[str, list[float]]]:
    """One daemon from its start: what was asked, and the seconds of every time."""
    door = bench.sockets / "scale.sock"
    with ExitStack() as stack:
        server: Server = stack.enter_context(processes.daemon(root.path, door, root.capacity))
        yield _START, [server.ready]
        yield _MEMORY, [server.resident()]
        crowd = [stack.enter_context(Connection(door)) for _ in range(bench.sizes.connections)]
        lookups = take_turns(crowd, request("GET", "/v1/models/" + key_of(0)), times(_IN_TURN))
        yield _LOOKUP, [seconds for series in lookups for seconds in series]
        one = crowd[0]
        yield _PAGE, _repeat(one, lambda _: request("GET", "/v1/models"))
        largest = request("GET", f"/v1/models?limit={LIMIT_MAX}")
        yield _LARGEST, _repeat(one, lambda _: largest)
        yield _WALK, list(_walk(one))
        yield _METRICS, _repeat(one, lambda _: request("GET", "/metrics"))
        yield _CHOICE, _repeat(one, lambda _: post("/v1/admission", {"bytes": _BYTES}))
        before = call(door, "GET", "/v1/status")["models"]
        yield _PUT, _repeat(one, lambda number: _put(f"bench/new-{name}-{number}"))
        if call(door, "GET", "/v1/status")["models"] != before:
            raise Unexpected("a put did not evict exactly one model")


def _repeat(connection: Connection, line: Callable[[int], bytes]) -> list[float]:
    with quiet():
        return [connection.exchange(line(number)) for number in range(_REPEATED)]


def _put(key: str) -> bytes:
    return request("PUT", f"/v1/models/{key}", _BYTES) + key.encode().ljust(_BYTES)


def _walk(connection: Connection) -> Iterator[float]:
    """The seconds of every page."""
    after = ""
    while after is not None:
        begun = time.perf_counter()
        connection.send(request("GET", f"/v1/models{after and '?after='}{after}"))
        page = connection.receive()
        yield time.perf_counter() - begun
        after = json.loads(page)["next"]
