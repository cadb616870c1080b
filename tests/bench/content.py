"""Content out by curl over a unix socket, against nginx that sends the same file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.client import call
from tests.bench.commands import absent, run
from tests.bench.figures import Row
from tests.bench.place import room
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB, MIB
from tests.bench.turns import order
from tests.bench.webserver import nginx

_KEY: Final = "bench/content"
_NGINX: Final = "nginx, sendfile on"
_REPEATED: Final = 4
"""How often everybody sends what is in the page cache in one round, since that is soon done."""


def measure(bench: Bench) -> list[Row]:
    """Bytes per second of one file, out of the page cache and from the disk."""
    if missing := absent("curl", "nginx"):
        bench.notes.append(f"Content was left out: there is no {missing} here.")
        return []
    size = bench.sizes.content
    scenario = f"{size / GIB:.3g} GiB of content to curl"
    warm = Row(scenario, "in the page cache", _NGINX, "MB/s", aim=">= 1")
    cold = Row(scenario, "from the disk", _NGINX, "MB/s", aim=">= 0.95")
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "content"))
        door = bench.sockets / "content.sock"
        stack.enter_context(processes.daemon(place / "root", door, size + 64 * MIB))
        with processes.sender(door, _KEY, size) as sending:
            sending.wait()
        file = Path(call(door, "GET", f"/v1/models/{_KEY}")["file"])
        web = bench.sockets / "nginx-content.sock"
        stack.enter_context(nginx(place / "nginx", web, file.parent))
        # The daemon's file itself, so that both find the same pages and the same blocks.
        theirs, ours = (lambda: _get(web, file.name), lambda: _get(door, f"v1/content/{_KEY}"))
        # What lies below the kernel may keep a copy, too: from now on for both.
        _forget(file)
        run("cat", file)
        for number in range(bench.sizes.rounds):
            warm.add(*_rates(size, file, ours, theirs, number, forget=False))
            cold.add(*_rates(size, file, ours, theirs, number, forget=True))
            bench.say(f"content: round {number + 1} of {bench.sizes.rounds}")
    return [warm, cold]


def _rates(
    size: int,
    file: Path,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    number: int,
    *,
    forget: bool,
) -> tuple[float, float]:
    """Bytes per second of both."""
    took = dict.fromkeys((ours, theirs), 0.0)
    repeated = 1 if forget else _REPEATED
    if not forget:
        run("cat", file)
    for one in range(repeated):
        for who in order((ours, theirs), number + one):
            if forget:
                _forget(file)
            took[who] += who()
    return repeated * size / took[ours], repeated * size / took[theirs]


def _get(door: Path, target: str) -> float:
    url = f"http://localhost/{target}"
    return run("curl", "-sSf", "--unix-socket", door, "-o", os.devnull, url)


def _forget(file: Path) -> None:
    """Have the kernel drop the file's pages, which were flushed long ago."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
