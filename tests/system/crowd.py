"""The clients of a storm: processes that are killed, made to stand still, and replaced."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tests
from tests.system.daemon import Daemon

LEAVE_WITHIN: Final = 90.0
LAST_LINES: Final = 12


@dataclass(slots=True)
class Pinned:
    """What a client wrote down last of its pin of a key; ``state`` is what it was about to do."""

    state: str
    ttl: float | None
    digest: str | None

    @property
    def stands(self) -> bool:
        """Whether the pin is certainly there, if its client did nothing more."""
        renewing = self.state == "asking" and self.digest is not None
        return self.ttl is None and (self.state == "has" or renewing)

    @property
    def may_stand(self) -> bool:
        return self.state != "gone"


@dataclass(slots=True)
class Life:
    """One process, and what it wrote down.  Its name is the holder of its pins."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    killed: bool = False
    stalled_until: float = 0.0

    def lines(self) -> list[dict[str, Any]]:
        text = self.log.read_text() if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def pins(self) -> dict[str, Pinned]:
        """The last word on each key that it ever pinned."""
        return {
            line["pin"]: Pinned(line["state"], line["ttl"], line["digest"])
            for line in self.lines()
            if "pin" in line
        }

    def failed(self) -> str:
        """Why it ended, and what it did last."""
        said = self.log.with_suffix(".err").read_text(errors="replace")
        last = "\n".join(str(line) for line in self.lines()[-LAST_LINES:])
        return f"{self.name} ended with {self.process.returncode}:\n{said}\nafter\n{last}"


@dataclass(slots=True)
class Crowd:
    """As many clients as there are slots, each the latest of its slot."""

    daemon: Daemon
    replica: Path
    place: Path
    source: random.Random
    lives: list[Life] = field(default_factory=list)
    slots: list[Life] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def begin(self, count: int) -> None:
        self.slots = [self._begin() for _ in range(count)]

    def disturb(self) -> None:
        """Let some go on that stood still; kill one, or stop one, or neither."""
        now = time.monotonic()
        for life in self.slots:
            if life.stalled_until and life.stalled_until <= now:
                life.process.send_signal(signal.SIGCONT)
                life.stalled_until = 0.0
        number = self.source.randrange(len(self.slots))
        life = self.slots[number]
        chance = self.source.random()
        if chance < 0.04:
            self.done["killed"] += 1
            life.killed = True
            life.process.kill()
            life.process.wait()
            _close(life)
            self.slots[number] = self._begin()
        elif chance < 0.16 and not life.stalled_until:
            self.done["stalled"] += 1
            life.process.send_signal(signal.SIGSTOP)
            life.stalled_until = now + self.source.uniform(0.05, 1.0)

    def look(self) -> None:
        """Nobody has ended by itself: that is how one says that something must not be."""
        for life in self.slots:
            assert life.process.poll() is None, life.failed()

    def end(self) -> None:
        """Tell all of them, and wait until each has let go of what it had."""
        for life in self.slots:
            life.process.send_signal(signal.SIGCONT)
            assert life.process.stdin is not None
            life.process.stdin.close()
        for life in self.slots:
            try:
                status = life.process.wait(LEAVE_WITHIN)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"hangs: {life.failed()}") from None
            assert status == 0, life.failed()

    def outcomes(self) -> Counter[str]:
        """How often each act came to what."""
        return Counter(
            f"{line['act']}: {line['outcome']}"
            for life in self.lives
            for line in life.lines()
            if "act" in line
        )

    def clear(self) -> None:
        """Leave no process behind, whatever happened."""
        for life in self.lives:
            life.process.kill()
            life.process.wait()
            _close(life)

    def _begin(self) -> Life:
        name = f"client-{len(self.lives)}"
        log = self.place / f"{name}.jsonl"
        arguments = (name, self.source.randrange(1 << 30), log, self.daemon.socket, self.replica)
        with log.with_suffix(".err").open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.storm_client", *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=sink,
                cwd=Path(tests.__file__).parents[1],
            )
        life = Life(name, log, process)
        self.lives.append(life)
        return life


def _close(life: Life) -> None:
    assert life.process.stdin is not None
    life.process.stdin.close()


@contextmanager
def gathered(daemon: Daemon, replica: Path, place: Path, source: random.Random) -> Iterator[Crowd]:
    """A crowd that is gone when the context is left."""
    place.mkdir()
    crowd = Crowd(daemon, replica, place, source)
    try:
        yield crowd
    finally:
        crowd.clear()
