"""A replica that begins to use a model at the very moment of its eviction.

Both are given an instant on the clock that all processes share.  The replica's
is moved after each round, later when it kept the model and earlier when it came
too late, so that most rounds are decided within some tenths of a millisecond.
``WEIGHTD_MOMENTS`` is the number of rounds.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.support import process
from tests.system.daemon import Answer, Daemon, running
from tests.system.journal import settled
from tests.system.models import BLOCK, blocks_of
from tests.system.tiers import MOMENTS

SIZE = 60 * BLOCK
ROOMY = 4000 * SIZE
TIGHT = 100 * BLOCK
"""Room for one of them, not for two."""

LEAD = 0.002
"""Seconds from the word to both until the eviction is asked for."""

STEP = 0.0001
JITTER = 0.0003

# Told a way, a directory and an instant, it takes the model then.  It answers "gone" when that
# failed; "kept" when the model stands where it was answered, which it then relies on until it is
# told to let go; "late" when that was gone, though it opened it; "torn" for bytes that are not so.
REPLICA = """
import fcntl, mmap, os, sys, time

def file_of(directory):
    return os.path.join(directory, 'm')

def taken(way, directory):
    place = file_of(directory) if way == 'map' else directory
    fd = os.open(place, os.O_RDONLY)
    if way == 'flock':
        fcntl.flock(fd, fcntl.LOCK_SH)
        return place, fd, None
    mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
    return place, None, mapped

def whole(mapped, directory):
    if mapped is None:
        with open(file_of(directory), 'rb') as file:
            return file.read() == expected
    return mapped[:] == expected

expected = b'm' * int(sys.argv[1])
print('ready', flush=True)
for line in sys.stdin:
    way, directory, instant = line.split()
    while time.monotonic() < float(instant):
        pass
    try:
        place, fd, mapped = taken(way, directory)
    except FileNotFoundError:
        print('gone', flush=True)
        continue
    kept = os.path.exists(place)
    right = whole(mapped, directory) if kept or mapped else True
    print('torn' if not right else 'kept' if kept else 'late', flush=True)
    if kept:
        sys.stdin.readline()
        print('whole' if whole(mapped, directory) else 'torn', flush=True)
    if fd is not None:
        os.close(fd)
    if mapped is not None:
        mapped.close()
    if kept:
        print('let go', flush=True)
"""


def delete(daemon: Daemon) -> Answer:
    return daemon.client.call("DELETE", "/v1/models/m")


def arrive(daemon: Daemon) -> Answer:
    return daemon.client.call("PUT", "/v1/models/n", b"n" * SIZE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("evict", "refusal", "capacity", "rounds"),
    [(delete, "in-use", ROOMY, MOMENTS), (arrive, "blocked", TIGHT, MOMENTS // 10)],
)
def test_one_that_begins_to_use_it_then_has_all_of_it_or_an_error(
    root: Path, evict: Callable[[Daemon], Answer], refusal: str, capacity: int, rounds: int
) -> None:
    moments = Moments(evict, refusal)
    with running(root, capacity=capacity) as daemon:
        if not daemon.client.status()["in_use_detection"]["leases"]:
            pytest.skip("cannot be had on this filesystem: it tells of no use")
        with process(REPLICA, str(SIZE)) as replica:
            for number in range(rounds):
                moments.one(daemon, replica, ("map", "map", "flock")[number % 3])
        status = settled(daemon)
        assert status["used_bytes"] == blocks_of(root) == 0
        assert status["holds"] == status["uses"] == 0
        assert daemon.stop() == 0
    # Which of them comes how often is the machine's; what may come together is not.
    assert sum(moments.outcomes.values()) == rounds
    for outcome, times in sorted(moments.outcomes.items()):
        print(times, *outcome)  # noqa: T201 - figures, for whoever asks with -rP


class Moments:
    """Rounds of one kind of eviction, and what came of them: way, eviction, replica."""

    def __init__(self, evict: Callable[[Daemon], Answer], refusal: str) -> None:
        self.outcomes: Counter[tuple[str, str, str]] = Counter()
        self._evict = evict
        self._refusal = refusal
        self._chance = random.Random(1)
        self._later = 0.0

    def one(self, daemon: Daemon, replica: subprocess.Popen[str], way: str) -> None:
        client = daemon.client
        assert client.call("PUT", "/v1/models/m", b"m" * SIZE).status == 201
        path = client.call("GET", "/v1/models/m", headers={"Accept": "text/plain"}).body.decode()
        instant = time.monotonic() + LEAD
        spread = self._chance.uniform(-JITTER, JITTER)
        _say(replica, f"{way} {path} {instant + self._later + spread}")
        while time.monotonic() < instant:
            pass
        answer = self._evict(daemon)
        told = _hear(replica)
        evicted = answer.status in (201, 204)
        assert evicted or answer.json()["code"] == self._refusal, answer
        self.outcomes[way, "evicted" if evicted else "refused", told] += 1
        # One that opened in time may still let the eviction go first, and then is late.
        assert told in (("gone", "late") if evicted else ("kept",)), (way, answer, told)
        self._later += STEP if told == "kept" else -STEP
        if told == "kept":
            assert Path(path).exists()
            _say(replica, "let go")
            assert _hear(replica) == "whole"
            assert _hear(replica) == "let go"
        _clear(daemon)


def _clear(daemon: Daemon) -> None:
    """Nobody uses it any more: what is left goes at once."""
    for record in daemon.client.get("/v1/models")["models"]:
        gone = daemon.client.call("DELETE", f"/v1/models/{record['key']}")
        assert gone.status == 204, gone


def _say(replica: subprocess.Popen[str], line: str) -> None:
    assert replica.stdin is not None
    replica.stdin.write(line + "\n")
    replica.stdin.flush()


def _hear(replica: subprocess.Popen[str]) -> str:
    assert replica.stdout is not None
    return replica.stdout.readline().strip()
