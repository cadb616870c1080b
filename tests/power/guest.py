"""What runs in the machine: the daemon on the data disk, checked, then put under load.

The console is all that outlives the cut.  What may have happened is said before
a call, what did after it, each line out of the machine before the next step.
"""

from __future__ import annotations

import json
import os
import termios
import threading
import traceback
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.power.told import Told, contents, restored
from tests.system.daemon import Daemon, running
from tests.system.journal import Journal, verify
from tests.system.load import SHARED, Worker, working

ROOT: Final = Path("/data/root")
KNOWN: Final = Path("/dev/vdc")
ROOMY: Final = 64_000_000
TIGHT: Final = 600_000
CLIENTS: Final = 3
READY_WITHIN: Final = 300.0
"""Seconds; an emulated processor is a tenth of a real one."""


class Console:
    """Lines that are on the wire when `say` returns."""

    def __init__(self) -> None:
        self._descriptor = os.open("/dev/ttyS0", os.O_WRONLY | os.O_NOCTTY)
        tty.setraw(self._descriptor)
        self._saying = threading.Lock()

    def say(self, **what: object) -> None:
        line = b"\n@ " + json.dumps(what).encode() + b"\n"
        with self._saying:
            os.write(self._descriptor, line)
            termios.tcdrain(self._descriptor)


class _Lost(AssertionError):
    """A check found what must not be."""


def main() -> None:
    console = Console()
    try:
        _live(console.say)
    except BaseException as failure:
        console.say(failed=traceback.format_exc(), lost=isinstance(failure, _Lost))
        raise


def _live(say: Callable[..., None]) -> None:
    known: dict[str, Any] = json.loads(KNOWN.read_bytes().rstrip(b"\0"))
    journal = restored(known)
    say(booted=os.uname().release)
    lazy = ("env", "LD_PRELOAD=/bin/libeatmydata.so") if known["lazy"] else ()
    evicting = known["evicting"]
    capacity = TIGHT if evicting else ROOMY
    with running(ROOT, capacity=capacity, prefix=lazy, ready=False) as daemon:
        daemon.wait_ready(READY_WITHIN)
        if known["evicted"]:
            journal.may_be_evicted(list(journal.models))
        _check(daemon, journal)
        for key, allowed in journal.models.items():
            say(table="models", name=key, may=[one and one.digest for one in allowed])
        for name, digests in journal.pins.items():
            say(table="pins", name=name, may=list(digests))
        models = sum(allowed != {None} for allowed in journal.models.values())
        pins = sum(allowed != {None} for allowed in journal.pins.values())
        say(verified=[models, pins], evicting=evicting)
        workers = [
            Worker(
                f"client-{number}", known["seed"] * 10 + number, daemon.client, evicting=evicting
            )
            for number in range(CLIENTS)
        ]
        for worker in workers:
            worker.take_over(journal)
            worker.journal.models = Told(say, "models", worker.journal.models)
            worker.journal.pins = Told(say, "pins", worker.journal.pins)
        say(loading=True)
        with working(workers):
            # Nothing ends this but the cut, or what must not be.
            evicted = _evictions(daemon)
            while all(worker.failure is None for worker in workers):
                threading.Event().wait(0.5)
                assert daemon.process.poll() is None, daemon.said()
                if evicting:
                    before, evicted = evicted, _evictions(daemon)
                    say(evicted=evicted - before)


def _check(daemon: Daemon, journal: Journal) -> None:
    try:
        verify(daemon, journal, SHARED)
    except AssertionError as failure:
        raise _Lost from failure


def _evictions(daemon: Daemon) -> int:
    """How many evictions this daemon remembers that nobody asked for."""
    kept = daemon.client.get("/v1/evictions?limit=1000")["evictions"]
    return sum(one["reason"] != "request" for one in kept)


if __name__ == "__main__":
    contents()
    main()
