"""``weightd get`` as a command, against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import quiet
from tests.bench.figures import Latency, Row
from tests.bench.hit import KEY, put_model
from tests.bench.place import room
from tests.bench.scenario import Bench
from tests.bench.sizes import MIB
from tests.bench.turns import order

_COMMAND: Final = """\
import sys
from weightd.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
"""The command as an installer writes it."""


def measure(bench: Bench) -> list[Row]:
    """Seconds from a process's start to its end; they take turns start by start."""
    row = Row("A lookup as a command", "weightd get, p50", "python -c pass", "ms", aim="<= 2")
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "get"))
        door = bench.sockets / "get.sock"
        stack.enter_context(processes.daemon(place / "root", door, 100 * MIB))
        put_model(door, KEY)
        script = place / "weightd"
        script.write_text(_COMMAND)
        ours = [sys.executable, str(script), "get", KEY]
        theirs = [sys.executable, "-c", "pass"]
        # Both are told where this clone is, as is otherwise said at an installation.
        environment = {
            **processes.clean_environment(),
            "PYTHONPATH": str(processes.HOME),
            "WEIGHTD_SOCKET": str(door),
        }
        _round(ours, theirs, environment, place, 1)
        for number in range(bench.sizes.rounds):
            lookups, nothing = _round(ours, theirs, environment, place, bench.sizes.starts)
            row.add(Latency.of(lookups).p50, Latency.of(nothing).p50)
            bench.say(f"get: round {number + 1} of {bench.sizes.rounds}")
    return [row]


def _round(
    ours: list[str], theirs: list[str], environment: dict[str, str], place: Path, count: int
) -> tuple[list[float], list[float]]:
    took: tuple[list[float], list[float]] = ([], [])
    with quiet():
        for number in range(count):
            for who in order((0, 1), number):
                begun = time.perf_counter()
                subprocess.run(
                    (ours, theirs)[who],
                    check=True,
                    cwd=place,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                )
                took[who].append(time.perf_counter() - begun)
    return took
