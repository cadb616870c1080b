"""Sixteen clients at once, at a budget that forces eviction."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.system.daemon import Daemon, running
from tests.system.journal import Journal, verify
from tests.system.load import SHARED, Worker, shared_contents, working
from tests.system.models import weights_on_disk
from tests.tiers import THOROUGH

CLIENTS: Final = 16
CAPACITY: Final = 4_000_000
SAMPLES: Final = 40 if THOROUGH else 20
CALLS: Final = 1_200 if THOROUGH else 600
"""Samples and calls end the load, whichever takes longer; `PAUSE` bounds both."""

PAUSE: Final = 0.05
LONGEST: Final = 600

TOLERANCE: Final = 64 << 10
"""What a filesystem may occupy beyond whole blocks, for all files together: the
blocks of its own that ext4 and xfs need for a file in many pieces."""


@pytest.mark.timeout(240)
def test_sixteen_clients_at_a_tight_budget(root: Path) -> None:
    source = random.Random(16)
    with running(root, capacity=CAPACITY) as daemon:
        workers = [
            Worker(f"client-{number}", source.randrange(1 << 30), daemon.client, evicting=True)
            for number in range(CLIENTS)
        ]
        with working(workers):
            most = _sample(daemon, workers)
        status = daemon.client.status()
        assert status["evictions"] > CLIENTS
        assert status["arrivals"] == 0
        journal = Journal()
        journal.contents |= shared_contents()
        for worker in workers:
            worker.journal.may_be_evicted(worker.keys)
            journal.absorb(worker.journal)
        verify(daemon, journal, SHARED)
        done = sum(worker.acknowledged for worker in workers)
        refused = sum(worker.refused for worker in workers)
    print(  # noqa: T201 - figures, for whoever asks with -rP
        f"{done} calls done, {refused} refused, {status['evictions']} evictions; at most "
        f"{most} of {CAPACITY} bytes on disk"
    )


def _sample(daemon: Daemon, workers: list[Worker]) -> int:
    """Look at the disk, the daemon standing still each time; the most that was on it."""
    most = 0
    pause = threading.Event()
    for number in range(LONGEST):
        with daemon.frozen():
            found = weights_on_disk(daemon.root).values()
        lengths = sum(length for length, _ in found)
        occupied = sum(blocks for _, blocks in found)
        assert lengths <= CAPACITY, number
        assert occupied <= CAPACITY + TOLERANCE, number
        most = max(most, lengths)
        if any(worker.failure for worker in workers):
            break
        if number >= SAMPLES and sum(worker.acknowledged for worker in workers) >= CALLS:
            break
        # Between two samples the daemon must get on; the instants are arbitrary.
        pause.wait(PAUSE)
    return most
