"""A put of one large file by curl, hashed and flushed, against the same work by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import call
from tests.bench.figures import Row
from tests.bench.place import room, write_random
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB, MIB

_PROGRAMS: Final = ("curl", "cp", "sha256sum", "sync")
_KEY: Final = "bench/put"
_SETTLE: Final = 0.05


def measure(bench: Bench) -> list[Row]:
    """Bytes per second; the source is in the page cache, the targets are new each time."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        bench.notes.append(f"The put was left out: there is no {', '.join(missing)} here.")
        return []
    size = bench.sizes.put
    row = Row(
        f"A put of {size / GIB:.3g} GiB, hashed and flushed",
        "curl -T",
        "cp, sha256sum, sync",
        "MB/s",
        aim=">= 0.9",
    )
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "put"))
        door = bench.sockets / "put.sock"
        root = place / "root"
        stack.enter_context(processes.daemon(root, door, size + 64 * MIB))
        source, copy = place / "source", place / "copy"
        write_random(source, size)
        turns = (lambda: _put(door, root, source), lambda: _copy(source, copy))
        for number in range(bench.sizes.rounds):
            # Whoever comes second finds the disk as the first left it: they swap.
            order = (0, 1) if number % 2 == 0 else (1, 0)
            took = {one: turns[one]() for one in order}
            row.add(size / took[0], size / took[1])
            bench.say(f"put: round {number + 1} of {bench.sizes.rounds}")
    return [row]


def _put(door: Path, root: Path, source: Path) -> float:
    os.sync()
    target = f"http://localhost/v1/models/{_KEY}"
    seconds = run("curl", "-sSf", "--unix-socket", door, "-T", source, "-o", os.devnull, target)
    call(door, "DELETE", f"/v1/models/{_KEY}")
    while os.listdir(root / "doomed"):
        time.sleep(_SETTLE)
    return seconds


def _copy(source: Path, copy: Path) -> float:
    os.sync()
    seconds = sum(
        run(*command) for command in (("cp", source, copy), ("sha256sum", copy), ("sync", copy))
    )
    copy.unlink()
    return seconds


def run(*command: str | Path) -> float:
    """The seconds that a command takes, which must succeed."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun
