"""SIGKILL at random instants under load, again and again on the same root.

Every other life has a budget with room for everything, under which nothing
that was acknowledged may be missing; the rest have one that forces eviction,
under which nothing pinned may be.  One kill in five comes while the daemon starts.
The seed decides what the clients do and when the kill comes; the machine
decides the rest.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from tests.system.daemon import Daemon, running
from tests.system.journal import Journal, Life, verify
from tests.system.load import SHARED, Worker, shared_contents, working
from tests.system.models import single
from tests.system.tiers import KILLS

ROOMY: Final = 64_000_000
TIGHT: Final = 2_000_000
CLIENTS: Final = 6
PER_TEST: Final = 10

PATIENCE: Final = 60.0
LONGEST: Final = 0.5
"""Seconds of load before a kill; each is enough for dozens of calls."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range((KILLS + PER_TEST - 1) // PER_TEST))
def test_killed_at_random_instants(root: Path, seed: int) -> None:
    source = random.Random(seed)
    journal = Journal()
    journal.contents |= shared_contents()
    acknowledged = 0
    for number in range(PER_TEST):
        evicting = number % 2 == 1
        if number % 5 == 4:
            _kill_while_it_starts(root, source.uniform(0.0, 0.05))
        with running(root, capacity=TIGHT if evicting else ROOMY) as daemon:
            if evicting:
                journal.may_be_evicted(list(journal.models))
            verify(daemon, journal, SHARED)
            acknowledged += _load_and_kill(daemon, journal, source, evicting=evicting)
    with running(root, capacity=ROOMY) as daemon:
        verify(daemon, journal, SHARED)
        assert daemon.stop() == 0
    assert acknowledged > PER_TEST


def test_order_and_counts_of_use_survive(root: Path) -> None:
    with running(root, capacity=ROOMY) as daemon:
        life = Life(daemon.client, Journal())
        for key in ("a", "b", "c", "d"):
            life.put(key, single(key, 100_000))
        for key in ("c", "a", "c"):
            daemon.client.get(f"/v1/models/{key}")
        # Recency is written down every few seconds; the log of its database tells when.
        log = root / "history.db-wal"
        before = log.stat().st_mtime_ns
        deadline = time.monotonic() + PATIENCE
        while log.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline, "nothing was written down"
            daemon.client.get("/readyz")
        daemon.kill()
    with running(root, capacity=ROOMY) as daemon:
        verdict = daemon.client.admission(ROOMY // 4096 * 4096)
        assert [victim["key"] for victim in verdict["victims"]] == ["b", "d", "a", "c"]
        assert daemon.client.get("/v1/models/c")["hits"] == 3
        verify(daemon, life.journal)


def _load_and_kill(
    daemon: Daemon, journal: Journal, source: random.Random, *, evicting: bool
) -> int:
    """Kill the daemon at some instant under load; how many calls it had acknowledged."""
    workers = [
        Worker(f"client-{number}", source.randrange(1 << 30), daemon.client, evicting=evicting)
        for number in range(CLIENTS)
    ]
    for worker in workers:
        worker.take_over(journal)
    with working(workers):
        # Not in place of an event: the instant is what is random here.
        threading.Event().wait(source.uniform(0.0, LONGEST))
        daemon.kill()
    for worker in workers:
        journal.absorb(worker.journal)
        if evicting:
            journal.may_be_evicted(worker.keys)
    return sum(worker.acknowledged for worker in workers)


def _kill_while_it_starts(root: Path, after: float) -> None:
    """Kill a daemon that has taken the root, and reads it or cleans it up."""
    with running(root, capacity=ROOMY, ready=False) as daemon:
        daemon.wait_listening()
        threading.Event().wait(after)
        daemon.kill()
