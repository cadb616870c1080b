"""A put of one large file by curl, verified and flushed, against the same work by others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench import processes
from tests.bench.commands import HASHERS, Cost, absent, spend
from tests.bench.figures import Row
from tests.bench.place import room, write_random
from tests.bench.processes import Server, be_rid_of
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB, MIB
from tests.bench.turns import order
from tests.bench.webserver import nginx, without_dav

MEMORY_BYTES: Final = 4 * MIB
"""What a put may add to what is resident of the daemon."""

_KEY: Final = "bench/put"
_NGINX: Final = "nginx PUT"


class Way(NamedTuple):
    """How somebody else has the file there: by what it comes, and who verifies it, if anybody."""

    arrival: str
    hasher: str
    aim: str

    @property
    def name(self) -> str:
        return ", ".join(step for step in (self.arrival, self.hasher, "sync") if step)


_WAYS: Final = (
    Way(_NGINX, "sha256sum", ">= 1"),
    Way(_NGINX, "openssl sha256", ">= 1"),
    Way("cp", "sha256sum", ">= 0.9"),
    Way("cp", "openssl sha256", ">= 0.9"),
    Way(_NGINX, "", ">= 0.7"),
)
_CPU_AIMS: Final = {_NGINX: "<= 1.3", "cp": ""}
"""Bytes that come by HTTP are held against bytes that do; a copy within the kernel is shown."""


class Comparison:
    """The rows of the scenario, round by round."""

    def __init__(self, size: int, ways: list[Way]) -> None:
        self._size = size
        scenario = f"A put of {size / GIB:.3g} GiB, verified and flushed"
        self._rates = {way: Row(scenario, "curl -T", way.name, "MB/s", aim=way.aim) for way in ways}
        # Who does not verify takes less of a processor, too; that says nothing.
        self._processors = {
            way: Row(scenario, "processors' time", way.name, "s/GiB", aim=_CPU_AIMS[way.arrival])
            for way in ways
            if way.hasher
        }
        self._memory = Row(scenario, "most memory it adds", "what it may add", "MB", aim="<= 1")

    @property
    def rows(self) -> Iterator[Row]:
        yield from self._rates.values()
        yield from self._processors.values()
        yield self._memory

    def add(self, ours: Cost, memory: int, theirs: dict[Way, Cost]) -> None:
        """Take the figures of one round."""
        self._memory.add(memory, MEMORY_BYTES)
        share = GIB / self._size
        for way, cost in theirs.items():
            self._rates[way].add(self._size / ours.seconds, self._size / cost.seconds)
            if way in self._processors:
                self._processors[way].add(ours.cpu * share, cost.cpu * share)


def measure(bench: Bench) -> list[Row]:
    """Bytes per second, of processors what all that it took has used, memory of the daemon.

    The source is in the page cache, the targets are new each time, and curl
    speaks to both servers over a unix socket.
    """
    if missing := absent("curl", "cp", "sha256sum", "openssl", "sync"):
        bench.notes.append(f"The put was left out: there is no {missing} here.")
        return []
    ways = list(_WAYS)
    if reason := without_dav():
        bench.notes.append(f"Puts by nginx were left out: {reason}.")
        ways = [way for way in ways if way.arrival != _NGINX]
    size = bench.sizes.put
    comparison = Comparison(size, ways)
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "put"))
        daemon = processes.daemon(place / "root", bench.sockets / "put.sock", size + 64 * MIB)
        trial = Trial(place, stack.enter_context(daemon), size)
        if len(ways) == len(_WAYS):
            trial.start_nginx(stack, bench.sockets / "nginx-put.sock")
        for number in range(bench.sizes.rounds):
            ours, memory, theirs = Cost(), 0, dict[Way, Cost]()
            for way in order((None, *ways), number):
                if way is None:
                    ours, memory = trial.put()
                else:
                    theirs[way] = trial.by_hand(way)
            comparison.add(ours, memory, theirs)
            bench.say(f"put: round {number + 1} of {bench.sizes.rounds}, {ours.seconds:.1f} s")
    return list(comparison.rows)


@dataclass
class Trial:
    """One file, and everybody who can bring it into ``place``."""

    place: Path
    daemon: Server
    size: int
    web: Server | None = None

    def __post_init__(self) -> None:
        self._source = self.place / "source"
        self._served = self.place / "served"
        self._served.mkdir()
        write_random(self._source, self.size)
        with self._source.open("rb") as file:
            self._sha256 = hashlib.file_digest(file, "sha256").hexdigest()

    def start_nginx(self, stack: ExitStack, socket: Path) -> None:
        """nginx that takes the file, too, for as long as ``stack`` is open."""
        self.web = stack.enter_context(
            nginx(self.place / "nginx", socket, self._served, writes=True)
        )

    def put(self) -> tuple[Cost, int]:
        """What a put takes, and the bytes that it adds to what is resident of the daemon."""
        os.sync()
        self.daemon.forget_most_resident()
        resident = self.daemon.most_resident()
        cost = self._curl(self.daemon, f"v1/models/{_KEY}?sha256={self._sha256}")
        added = self.daemon.most_resident() - resident
        be_rid_of(self.daemon, self.place / "root", _KEY)
        return cost, added

    def by_hand(self, way: Way) -> Cost:
        """What the steps of ``way`` take."""
        os.sync()
        copy = self._served / "copy"
        if way.arrival == _NGINX and self.web is not None:
            cost = self._curl(self.web, copy.name)
        else:
            cost = spend("cp", self._source, copy)
        if way.hasher:
            cost += spend(*HASHERS[way.hasher], copy)
        cost += spend("sync", copy)
        copy.unlink()
        return cost

    def _curl(self, server: Server, target: str) -> Cost:
        """What a put by curl takes, the server's part included."""
        before = server.cpu()
        cost = spend(
            *("curl", "-sSf", "--unix-socket", server.socket, "-T", self._source),
            *("-o", os.devnull, f"http://localhost/{target}"),
        )
        return cost + Cost(cpu=server.cpu() - before)
