"""A hit, against a ready-made answer of the same stack and against no framework at all."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import Connection, request, take_turns, times
from tests.bench.figures import Latency, Row
from tests.bench.place import room
from tests.bench.scenario import Bench
from tests.bench.sizes import MIB

KEY: Final = "meta-llama/Llama-3.1-8B@main"
TARGET: Final = f"/v1/models/{KEY}"

_RIVALS: Final = {
    "fastapi": "FastAPI route, ready-made response",
    "asgi": "raw ASGI app, same server",
}
_WARM_UP: Final = 300
_BLOCKS: Final = 10


def measure(bench: Bench) -> list[Row]:
    """One keep-alive connection to each server on unix sockets; every server takes its turn."""
    rows = {
        (kind, figure): Row(
            "A hit, one connection",
            f"GET a record, {figure}",
            rival,
            "us",
            aim="<= 2.5" if (kind, figure) == ("asgi", "p50") else "",
        )
        for kind, rival in _RIVALS.items()
        for figure in ("p50", "p99")
    }
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "hit"))
        door = bench.sockets / "hit.sock"
        stack.enter_context(processes.daemon(place / "root", door, 100 * MIB))
        put_model(door, KEY)
        ours = stack.enter_context(Connection(door))
        body = ready_body(door, place)
        theirs = {
            kind: stack.enter_context(start_peer(stack, bench, kind, body)) for kind in _RIVALS
        }
        line = request("GET", TARGET)
        everyone = {"weightd": ours, **theirs}
        for connection in everyone.values():
            take_turns([connection], line, times(_WARM_UP))
        for number in range(bench.sizes.rounds):
            figures = _round(everyone, line, bench.sizes.requests)
            for (kind, figure), row in rows.items():
                row.add(getattr(figures["weightd"], figure), getattr(figures[kind], figure))
            bench.say(f"hit: round {number + 1} of {bench.sizes.rounds}")
    return list(rows.values())


def _round(everyone: dict[str, Connection], line: bytes, requests: int) -> dict[str, Latency]:
    """Blocks of requests in turn, so that what else the machine does falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in everyone}
    names = list(everyone)
    for block in range(_BLOCKS):
        first = block % len(names)
        for name in names[first:] + names[:first]:
            seconds[name] += take_turns([everyone[name]], line, times(requests // _BLOCKS))[0]
    return {name: Latency.of(taken) for name, taken in seconds.items()}


def put_model(door: Path, key: str, size: int = 4096) -> None:
    """A model of one file, put over HTTP."""
    with Connection(door) as connection:
        connection.send(request("PUT", f"/v1/models/{key}", size) + b"\x01" * size)
        connection.receive()


def ready_body(door: Path, place: Path) -> Path:
    """A file with what a hit answers, for the peers to answer the same."""
    with Connection(door) as connection:
        connection.send(request("GET", TARGET))
        body = connection.receive()
    assert json.loads(body)["key"] == KEY
    path = place / "ready.json"
    path.write_bytes(body)
    return path


def start_peer(stack: ExitStack, bench: Bench, kind: str, body: Path) -> Connection:
    """A peer that lives as long as ``stack``, and a connection to it."""
    door = bench.sockets / f"{kind}-{body.parent.name}.sock"
    stack.enter_context(processes.peer(kind, door, body))
    return Connection(door)
