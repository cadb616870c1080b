"""A fetch into a flushed, verified, published model, against what else downloads models."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import Connection, Unexpected, post
from tests.bench.clients import Brought, Job, bring
from tests.bench.figures import Row
from tests.bench.models import ROUND_TRIP_MILLISECONDS, Model, Servers, served
from tests.bench.place import room
from tests.bench.processes import Server, be_rid_of
from tests.bench.scenario import Bench
from tests.bench.sizes import MIB
from tests.bench.turns import order
from tests.parts import missing

MEMORY_BYTES: Final = 300e6
"""What the daemon may take at most, whatever it fetches."""

_NEEDS: Final = (
    "curl", "aria2c", "s5cmd", "nginx", "weed", "sha256sum", "openssl", "sync", "boto3",
    "obstore", "huggingface_hub",
)  # fmt: skip

_RIVALS: Final = {
    "http": ("curl", "aria2c -x8"),
    "s3": ("curl", "aria2c -x8", "s5cmd"),
    "hub": ("snapshot_download",),
    "far": ("curl", "aria2c -x8"),
}
_SHOWN: Final = {
    "http": "from a web server",
    "s3": "from S3",
    "hub": "from a hub",
    "far": f"from a web server {ROUND_TRIP_MILLISECONDS} ms away",
}


class Comparison:
    """The rows of one model from one kind of server."""

    def __init__(self, kind: str, model: Model) -> None:
        self.kind = kind
        self.model = model
        count, each = len(model.paths), model.each
        files = f"{each / 1e6:,.0f} MB" if count == 1 else f"{count} x {each / 1e6:,.0f} MB"
        scenario = f"A fetch of {files}"
        what = _SHOWN[kind]
        self.rates = {
            name + steps: Row(scenario, what, name + steps, "MB/s")
            for name in _RIVALS[kind]
            for steps in Brought(0, 0, 0, 0).steps
        }
        self.fastest = Row(
            scenario, what, "the fastest that verifies and flushes", "MB/s", aim=">= 1.2"
        )
        self.memory = Row(scenario, f"{what}, most memory", "what it may be", "MB", aim="<= 1")

    @property
    def rows(self) -> Iterator[Row]:
        return itertools.chain([self.fastest], self.rates.values(), [self.memory])

    def run(self, server: Server, servers: Servers, place: Path, number: int) -> None:
        """One round: everybody takes a turn, and who is first is another each time."""
        size = self.model.bytes
        ours, took = 0.0, dict[str, float]()
        for name in order(("", *_RIVALS[self.kind]), number):
            if name:
                brought = bring(name, Job(servers, self.kind, self.model, place / "copy"))
                took |= {name + steps: seconds for steps, seconds in brought.steps.items()}
            else:
                ours, memory = _fetch(server, place / "root", servers, self.kind, self.model)
                self.memory.add(memory, MEMORY_BYTES)
        for name, seconds in took.items():
            self.rates[name].add(size / ours, size / seconds)
        # The name alone is that of a download that is not looked at again.
        same_work = (seconds for name, seconds in took.items() if name not in _RIVALS[self.kind])
        self.fastest.add(size / ours, size / min(same_work))


def measure(bench: Bench) -> list[Row]:
    """Bytes per second from local servers, which serve from memory; the targets are new each time.

    Every model has its digests listed but for S3, where the store states none.
    """
    without = [reason for part in _NEEDS if (reason := missing(part)) is not None]
    if without:
        bench.notes.append(f"Fetches were left out: {'; '.join(without)}.")
        return []
    sizes = bench.sizes
    shapes = {
        "one": (1, sizes.fetch),
        "many": (sizes.shards, sizes.shard),
        "far": (1, sizes.far),
    }
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "fetch"))
        bench.say("fetch: making models and putting them on their servers")
        servers, models = stack.enter_context(served(place, shapes))
        server = stack.enter_context(
            processes.daemon(
                place / "root",
                bench.sockets / "fetch.sock",
                max(model.bytes for model in models) + 64 * MIB,
                servers.environment,
            )
        )
        comparisons = [
            Comparison(kind, model)
            for model in models
            for kind in (("far",) if model.name == "far" else ("http", "s3", "hub"))
        ]
        for number in range(sizes.rounds):
            for comparison in comparisons:
                comparison.run(server, servers, place, number)
            bench.say(f"fetch: round {number + 1} of {sizes.rounds}")
        return [row for comparison in comparisons for row in comparison.rows]


def _fetch(
    server: Server, root: Path, servers: Servers, kind: str, model: Model
) -> tuple[float, int]:
    """Seconds from the wish to the answer that it is here, and the most memory on the way."""
    key = f"bench/{model.name}-{kind}"
    wish = post("/v1/fetch?wait=600", {"key": key, "source": servers.source(kind, model)})
    os.sync()
    server.forget_most_resident()
    with Connection(server.socket) as connection:
        begun = time.perf_counter()
        connection.send(wish)
        record = json.loads(connection.receive())
        took = time.perf_counter() - begun
    memory = server.most_resident()
    if tuple(file["sha256"] for file in record.get("files", ())) != model.sha256s:
        raise Unexpected(f"weightd fetched something else than {model.name}: {record}")
    be_rid_of(server, root, key)
    return took, memory
