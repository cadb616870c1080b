"""What runs in the machine: the daemon on the data disk, checked, then put under load.

The console is all that outlives the cut.  What may have happened is said before
a call, what did after it, each line out of the machine before the next step.
"""

from __future__ import annotations

import json
import os
import sys
import termios
import threading
import traceback
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.power.told import Told, contents, restored
from tests.system.daemon import running
from tests.system.journal import verify
from tests.system.load import SHARED, Worker, working

ROOT: Final = Path("/data/root")
KNOWN: Final = Path("/dev/vdc")
CAPACITY: Final = 64_000_000
CLIENTS: Final = 3
READY_WITHIN: Final = 300.0
"""Seconds; an emulated processor is a tenth of a real one."""

LOAD_SECONDS: Final = 600.0
"""Far more than the machine is given."""


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


def main(how: str) -> None:
    console = Console()
    try:
        _live(console.say, how)
    except BaseException:
        console.say(failed=traceback.format_exc())
        raise


def _live(say: Callable[..., None], how: str) -> None:
    known: dict[str, Any] = json.loads(KNOWN.read_bytes().rstrip(b"\0"))
    journal = restored(known)
    say(booted=os.uname().release)
    lazy = ("env", "LD_PRELOAD=/bin/libeatmydata.so") if how == "unsynced" else ()
    with running(ROOT, capacity=CAPACITY, prefix=lazy, ready=False) as daemon:
        daemon.wait_ready(READY_WITHIN)
        verify(daemon, journal, SHARED)
        for key, allowed in journal.models.items():
            say(table="models", name=key, may=[one and one.digest for one in allowed])
        for name, digests in journal.pins.items():
            say(table="pins", name=name, may=list(digests))
        models = sum(allowed != {None} for allowed in journal.models.values())
        pins = sum(allowed != {None} for allowed in journal.pins.values())
        say(verified=[models, pins])
        workers = [
            Worker(f"client-{number}", known["seed"] * 10 + number, daemon.client, evicting=False)
            for number in range(CLIENTS)
        ]
        for worker in workers:
            worker.take_over(journal)
            worker.journal.models = Told(say, "models", worker.journal.models)
            worker.journal.pins = Told(say, "pins", worker.journal.pins)
        say(loading=True)
        with working(workers):
            # Nothing ends this but the cut.
            threading.Event().wait(LOAD_SECONDS)


if __name__ == "__main__":
    contents()
    main(sys.argv[1])
