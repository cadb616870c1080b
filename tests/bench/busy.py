"""The same hit while one large model streams in and another is unlinked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import Connection, Unexpected, call, request, take_turns, times
from tests.bench.figures import Latency, Row
from tests.bench.hit import KEY, TARGET, put_model, ready_body, start_peer
from tests.bench.place import room
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB, MIB

_ARRIVING: Final = "bench/arriving"
_LEAVING: Final = "bench/leaving"
_BETWEEN_LOOKS: Final = 0.02
_WAIT: Final = 0.05
_WITHIN: Final = 600.0


def measure(bench: Bench) -> list[Row]:
    """Latencies under load over those of the same daemon idle, in the same round.

    A ready-made answer of a process that does nothing else takes turns with the
    hit, request by request: what it loses is the machine's share.
    """
    sizes = bench.sizes
    load = f"{sizes.stream / GIB:.3g} GiB arrives, {sizes.unlink / GIB:.3g} GiB is unlinked"
    scenario = f"A hit while {load}"
    hit = {
        name: Row(scenario, f"GET a record, {name}", "itself, idle", "us", aim=aim)
        for name, aim in (("p50", ""), ("p99", "<= 3"), ("worst", ""))
    }
    control = {
        name: Row(scenario, f"ready-made answer elsewhere, {name}", "itself, idle", "us")
        for name in ("p50", "p99", "worst")
    }
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "busy"))
        door = bench.sockets / "busy.sock"
        capacity = sizes.stream + sizes.unlink + 64 * MIB
        stack.enter_context(processes.daemon(place / "root", door, capacity))
        put_model(door, KEY)
        connections = [
            stack.enter_context(Connection(door)),
            stack.enter_context(start_peer(stack, bench, "fastapi", ready_body(door, place))),
        ]
        for number in range(sizes.rounds):
            _put(door, _LEAVING, sizes.unlink)
            idle = take_turns(connections, request("GET", TARGET), times(sizes.requests))
            busy, lasted = _under_load(bench, door, place / "root", connections)
            for rows, before, after in zip((hit, control), idle, busy, strict=True):
                for name, row in rows.items():
                    row.add(getattr(Latency.of(after), name), getattr(Latency.of(before), name))
            bench.say(
                f"busy: round {number + 1} of {sizes.rounds}, under load for {lasted:.1f} s, "
                f"{len(busy[0])} hits meanwhile"
            )
            call(door, "DELETE", f"/v1/models/{_ARRIVING}")
            _await(_gone(place / "root"))
    return [*hit.values(), *control.values()]


def _under_load(
    bench: Bench, door: Path, root: Path, connections: list[Connection]
) -> tuple[list[list[float]], float]:
    """Hits from the moment the large model is deleted until it is gone and the other one here."""
    with processes.sender(door, _ARRIVING, bench.sizes.stream) as sending:
        _await(lambda: _anything(root / "incoming"))
        begun = time.perf_counter()
        call(door, "DELETE", f"/v1/models/{_LEAVING}")
        gone = _gone(root)
        lines = take_turns(
            connections,
            request("GET", TARGET),
            _now_and_then(lambda: sending.poll() is None or not gone()),
        )
        if sending.wait() != 0:
            raise Unexpected("the large put failed")
        return lines, time.perf_counter() - begun


def _put(door: Path, key: str, size: int) -> None:
    with processes.sender(door, key, size) as sending:
        if sending.wait() != 0:
            raise Unexpected(f"the put of {key} failed")
    # What is measured next shall not share the disk with what is left of this.
    os.sync()


def _gone(root: Path) -> Callable[[], bool]:
    return lambda: not _anything(root / "doomed")


def _anything(directory: Path) -> bool:
    with os.scandir(directory) as entries:
        return next(entries, None) is not None


def _now_and_then(condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, looked at only so often that looking costs nothing."""
    due = time.perf_counter() + _BETWEEN_LOOKS
    holds = True

    def more() -> bool:
        nonlocal due, holds
        now = time.perf_counter()
        if now >= due:
            holds = condition()
            due = now + _BETWEEN_LOOKS
        return holds

    return more


def _await(condition: Callable[[], bool]) -> None:
    end = time.perf_counter() + _WITHIN
    while not condition():
        if time.perf_counter() > end:
            raise Unexpected(f"nothing changed on disk for {_WITHIN:.0f} s")
        time.sleep(_WAIT)
