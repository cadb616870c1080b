"""What a daemon has of its own, to compare before and after: tasks, descriptors, locks."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.polling import until, until_nothing
from tests.system.daemon import Daemon

_TELLS_TASKS: Final = """
import asyncio, os, signal

def tell(number, frame):
    loop = asyncio._get_running_loop()
    doing = [task.get_coro() for task in asyncio.all_tasks(loop)]
    # Not every awaitable that a task runs has a name.
    names = [getattr(one, "__qualname__", type(one).__name__) for one in doing]
    with open({told!r} + ".part", "w") as file:
        file.write("\\n".join(names))
    os.rename({told!r} + ".part", {told!r})

signal.signal(signal.SIGUSR2, tell)
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """The tasks by their coroutines, the descriptors by what they name, the locks by their kind."""

    tasks: Counter[str]
    descriptors: Counter[str]
    locks: Counter[str]

    def more_than(self, before: Inside) -> Counter[str]:
        """What is there that was not there before."""
        return (
            (self.tasks - before.tasks)
            + (self.descriptors - before.descriptors)
            + (self.locks - before.locks)
        )


def telling(place: Path) -> tuple[str, ...]:
    """A prefix for a daemon that tells its tasks when it gets SIGUSR2."""
    place.mkdir()
    code = _TELLS_TASKS.format(told=os.fspath(place / "tasks"))
    (place / "sitecustomize.py").write_text(code)
    return ("env", f"PYTHONPATH={place}")


def inside(daemon: Daemon, place: Path) -> Inside:
    """Look into a daemon that runs with the prefix `telling` made in ``place``."""
    return Inside(_tasks(daemon, place / "tasks"), _descriptors(daemon), _locks(daemon))


def given_back(daemon: Daemon, place: Path, before: Inside) -> None:
    """Wait until nothing is left of what was not there ``before``."""
    left = partial(_left, daemon, place, before)
    until_nothing(left, daemon.said)


def _left(daemon: Daemon, place: Path, before: Inside) -> object:
    return inside(daemon, place).more_than(before)


def _tasks(daemon: Daemon, told: Path) -> Counter[str]:
    told.unlink(missing_ok=True)
    daemon.process.send_signal(signal.SIGUSR2)
    until(told.exists, lambda: f"it does not tell its tasks:\n{daemon.said()}")
    return Counter(f"task {name}" for name in told.read_text().splitlines())


def _descriptors(daemon: Daemon) -> Counter[str]:
    """Sockets and the like have numbers of their own, and are counted by their kind."""
    found: Counter[str] = Counter()
    table = Path(f"/proc/{daemon.process.pid}/fd")
    for entry in table.iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        found[f"descriptor {target if target.startswith('/') else target.partition(':')[0]}"] += 1
    return found


def _locks(daemon: Daemon) -> Counter[str]:
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return Counter(
        f"lock {words[1]} {words[3]}"
        for words in lines
        # A line with an arrow is of one who waits.
        if words[1] != "->" and int(words[4]) == daemon.process.pid
    )
