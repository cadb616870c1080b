"""What a caller has on this disk already, by each way in, against a copy that is flushed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.commands import absent, run
from tests.bench.figures import Row
from tests.bench.place import remove, room, write_random
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB, MIB
from tests.bench.turns import order
from weightd.client import Client

_RIVAL: Final = "cp -r, sync"
_PROGRAMS: Final = ("cp", "sync")
_LARGE: Final = 4
_SMALL: Final = 12
_SETTLE: Final = 0.05
_KEY: Final = "bench/hands"


def measure(bench: Bench) -> list[Row]:
    """Bytes per second, and the seconds of an adoption, of one directory; hashes are known to that.

    The source is in the page cache.  What is adopted is the copy that was just flushed.
    """
    if missing := absent(*_PROGRAMS):
        bench.notes.append(f"The uploads were left out: there is no {missing} here.")
        return []
    size = bench.sizes.hands
    scenario = f"A directory of {size / GIB:.3g} GiB on this disk"
    upload = Row(scenario, "an upload by the client", _RIVAL, "MB/s", aim=">= 0.95")
    put = Row(scenario, "a put of it as a tar stream", _RIVAL, "MB/s")
    adopt = Row(scenario, "an adoption, hashes known", _RIVAL, "ms", aim="< 100 ms")
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "hands"))
        door = bench.sockets / "hands.sock"
        stack.enter_context(processes.daemon(place / "root", door, size + 64 * MIB))
        client = stack.enter_context(Client(door))
        trial = _Trial(place, client)
        whole = trial.lay_out(size)
        turns = (trial.copy_and_adopt, trial.upload, trial.put)
        for number in range(bench.sizes.rounds):
            took = {one: turns[one]() for one in order(range(len(turns)), number)}
            copied, adopted = took[0]
            upload.add(whole / took[1][0], whole / copied)
            put.add(whole / took[2][0], whole / copied)
            adopt.add(adopted, copied)
            bench.say(f"hands: round {number + 1} of {bench.sizes.rounds}, {adopted * 1e3:.0f} ms")
    return [upload, put, adopt]


@dataclass(frozen=True)
class _Trial:
    """One directory, and each way that it goes; every way answers seconds."""

    place: Path
    client: Client

    def lay_out(self, size: int) -> int:
        """Make the directory, and the list of its hashes; how many bytes it has."""
        source = self.place / "source"
        source.mkdir()
        for number in range(_LARGE):
            write_random(source / f"model-{number}.safetensors", size // _LARGE)
        for number in range(_SMALL):
            write_random(source / f"small-{number}.json", 4096)
        with (self.place / "sums").open("w") as sums:
            for file in sorted(source.iterdir()):
                with file.open("rb") as opened:
                    digest = hashlib.file_digest(opened, "sha256").hexdigest()
                sums.write(f"{digest}  {file.name}\n")
        return sum(file.stat().st_size for file in source.iterdir())

    def copy_and_adopt(self) -> tuple[float, float]:
        """The seconds of the copy, and of its adoption."""
        copy = self.place / "copy"

        def copied() -> None:
            run("cp", "-r", self.place / "source", copy)
            run("sync", *copy.iterdir(), copy)

        def adopted() -> None:
            self.client.adopt(_KEY, copy, sha256sums=self.place / "sums")

        seconds = _timed(copied)
        took = _timed(adopted)
        self._rid()
        if copy.exists():
            remove(copy)
        return seconds, took

    def upload(self) -> tuple[float, float]:
        return self._put(create_only=False), 0.0

    def put(self) -> tuple[float, float]:
        return self._put(create_only=True), 0.0

    def _put(self, *, create_only: bool) -> float:
        # Whether it may is decided by the daemon at that moment, so it goes over the socket.
        seconds = _timed(
            lambda: self.client.put(_KEY, self.place / "source", create_only=create_only)
        )
        self._rid()
        return seconds

    def _rid(self) -> None:
        self.client.delete(_KEY)
        while os.listdir(self.place / "root" / "doomed"):
            time.sleep(_SETTLE)


def _timed(act: Callable[[], object]) -> float:
    os.sync()
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
