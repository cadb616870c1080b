"""A storm: every kind of call at once from clients that die and stall, while the budget changes.

Each client looks at every byte that it relies on, by pin, hold or mapping, and
ends with a traceback when something is not as it must be.  Between what they do
the daemon is made to stand still, and rule 1 is held against the disk.  When
all are gone, nothing of theirs is left.

``WEIGHTD_STORM_SECONDS`` says for how long; ``WEIGHTD_STORM_SEED`` repeats what
is random here (what the machine decides it does not).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import CI
from tests.system.crowd import Crowd, gathered
from tests.system.daemon import Daemon, running
from tests.system.inside import given_back, inside, telling
from tests.system.journal import listed_models, settled, verify_disk
from tests.system.models import blocks_of, single, weights_on_disk
from tests.system.storm_models import content_of
from tests.system.tiers import STORM_CLIENTS, STORM_SECONDS

MB: Final = 1_000_000
BUDGETS: Final = tuple(size * MB for size in (5, 6, 8, 10, 12))
LAST: Final = 2 * MB

PAUSE: Final = 0.04
RESIZED_WITHIN: Final = 60.0

TOLERANCE: Final = 64 << 10
"""What a filesystem may occupy beyond whole blocks, for all files together."""


@dataclass(slots=True)
class Budget:
    """The budget as the daemon's settings have it, and what may be on disk by now."""

    file: Path
    capacity: int
    most: int = 0
    samples: int = 0
    resizes: int = 0
    bound: int = field(init=False)

    def __post_init__(self) -> None:
        self.bound = self.capacity
        self._write()

    def resize(self, daemon: Daemon, capacity: int) -> None:
        """Change the file, say so, and wait until the new budget is in force.

        What a larger one promised may still be written until the books fit the new one.
        """
        self.capacity = capacity
        self.bound = max(self.bound, capacity)
        self.resizes += 1
        self._write()
        daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + RESIZED_WITHIN
        while daemon.client.status()["capacity_bytes"] != capacity:
            assert time.monotonic() < deadline, daemon.said()

    def sample(self, daemon: Daemon) -> None:
        """Rule 1 on disk at one instant."""
        if self.bound > self.capacity:
            told = daemon.client.status()
            if told["used_bytes"] + told["reserved_bytes"] - told["written_bytes"] <= self.capacity:
                self.bound = self.capacity
        with daemon.frozen():
            found = weights_on_disk(daemon.root).values()
        lengths = sum(length for length, _ in found)
        occupied = sum(blocks for _, blocks in found)
        assert lengths <= self.bound, (lengths, self.bound, self.capacity, self.samples)
        assert occupied <= self.bound + TOLERANCE, (occupied, self.bound, self.capacity)
        self.most = max(self.most, lengths)
        self.samples += 1

    def _write(self) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(f"capacity = {self.capacity}\n")
        beside.replace(self.file)


@pytest.mark.needs("flock")
@pytest.mark.timeout(STORM_SECONDS + 300)
def test_a_storm_costs_nobody_what_he_relies_on(root: Path, tmp_path: Path) -> None:
    given = os.environ.get("WEIGHTD_STORM_SEED")
    seed = int(given) if given else 1 if CI else random.SystemRandom().randrange(1 << 30)
    _print(f"WEIGHTD_STORM_SEED={seed}")
    source = random.Random(seed)
    budget = Budget(tmp_path / "weightd.toml", BUDGETS[-1])
    replica = tmp_path / "replica.sock"
    options = ("--config", str(budget.file), "--replica-socket", str(replica))
    hooks = tmp_path / "hooks"
    with running(root, capacity=None, options=options, prefix=telling(hooks)) as daemon:
        _warm(daemon)
        before = inside(daemon, hooks)
        with gathered(daemon, replica, tmp_path / "crowd", source) as crowd:
            crowd.begin(STORM_CLIENTS)
            _storm(daemon, crowd, budget)
            crowd.end()
            _tell(daemon, crowd, budget)
            settled(daemon)
            _pins_are_the_dead_clients(daemon, crowd)
        status = _nothing_is_relied_on(daemon)
        verify_disk(daemon, status)
        given_back(daemon, hooks, before)
        budget.resize(daemon, LAST)
        _is_within(daemon, LAST)
        left = _all_whole(daemon)
        assert daemon.stop() == 0
        log = daemon.log.read_text(errors="replace")
        assert not [line for line in log.splitlines() if _is_a_fault(line)], daemon.said()
    with running(root, capacity=BUDGETS[-1]) as daemon:
        assert _all_whole(daemon) == left
        verify_disk(daemon, settled(daemon))


def _warm(daemon: Daemon) -> None:
    """Let it open what it opens once."""
    client = daemon.client
    assert client.call("PUT", "/v1/models/first", single("first", 10_000).body).status == 201
    assert client.call("PUT", "/v1/pins/first/first").status == 201
    assert client.call("DELETE", "/v1/pins/first/first").status == 204
    assert client.call("DELETE", "/v1/models/first").status == 204
    settled(daemon)


def _storm(daemon: Daemon, crowd: Crowd, budget: Budget) -> None:
    pause = threading.Event()
    until = time.monotonic() + STORM_SECONDS
    while time.monotonic() < until:
        crowd.look()
        crowd.disturb()
        if crowd.source.random() < 0.03:
            budget.resize(daemon, crowd.source.choice(BUDGETS))
        budget.sample(daemon)
        # Between two samples the daemon must get on; the instants are arbitrary.
        pause.wait(PAUSE)


def _pins_are_the_dead_clients(daemon: Daemon, crowd: Crowd) -> None:
    """Every pin that is left was a killed client's; none that it had is missing; all are whole."""
    client = daemon.client
    left = {
        (pin["holder"], pin["key"]): pin["generation"]
        for pin in client.get("/v1/pins")["pins"]
        if pin["kind"] == "pin"
    }
    may: set[tuple[str, str]] = set()
    for life in crowd.lives:
        for key, pinned in life.pins().items():
            name = life.name, key
            if life.killed and pinned.stands:
                assert left.get(name) == pinned.digest, (name, pinned, life.lines()[-3:])
            if life.killed and pinned.may_stand:
                may.add(name)
    assert left.keys() <= may, (left, may)
    for (holder, key), digest in left.items():
        answer = client.call("PUT", f"/v1/pins/{holder}/{key}")
        assert answer.status in (200, 201, 404), answer
        if answer.status == 200:
            assert answer.json()["digest"] == digest, answer
            assert content_of(key, digest).is_at(Path(answer.json()["path"])), (holder, key)
        assert client.call("DELETE", f"/v1/pins/{holder}/{key}").status in (204, 404)


def _nothing_is_relied_on(daemon: Daemon) -> Any:
    """The status once the kernel's own claims were seen to be gone as well."""
    deadline = time.monotonic() + RESIZED_WITHIN
    while True:
        status = settled(daemon)
        left = {name: status[name] for name in ("pins", "holds", "uses", "waiting")}
        if not any(left.values()) and not status["retired_models"]:
            return status
        assert time.monotonic() < deadline, (left, daemon.client.get("/v1/pins"))
        time.sleep(0.1)  # the kernel announces nothing


def _is_within(daemon: Daemon, capacity: int) -> None:
    """A smaller budget evicts down when nobody relies on anything."""
    deadline = time.monotonic() + RESIZED_WITHIN
    while (status := settled(daemon))["used_bytes"] > capacity:
        assert time.monotonic() < deadline, (status, daemon.said())
    assert status["over_budget_bytes"] == 0
    assert status["used_bytes"] == blocks_of(daemon.root)


def _all_whole(daemon: Daemon) -> dict[str, str]:
    """Every model that is listed, by its digest, after a look at every byte of it."""
    found = {}
    for record in listed_models(daemon.client):
        content = content_of(record["key"], record["digest"])
        assert content.is_at(Path(record["path"])), record
        found[record["key"]] = record["digest"]
    return found


def _is_a_fault(line: str) -> bool:
    words = ("Traceback", "ERROR", "CRITICAL", "a bug", "never retrieved", "never awaited")
    return any(word in line for word in words)


def _tell(daemon: Daemon, crowd: Crowd, budget: Budget) -> None:
    status = daemon.client.status()
    reasons = Counter(
        one["reason"] for one in daemon.client.get("/v1/evictions?limit=1000")["evictions"]
    )
    _print(
        f"{STORM_CLIENTS} clients, {crowd.done['killed']} killed, {crowd.done['stalled']} stalls; "
        f"{budget.resizes} resizes, {budget.samples} samples, at most {budget.most} bytes on disk; "
        f"{status['evictions']} evictions, the first of them {dict(reasons)}"
    )
    for what, times in sorted(crowd.outcomes().items()):
        _print(f"  {times:6} {what}")


def _print(line: str) -> None:
    print(line)  # noqa: T201 - figures, for whoever asks with -rP
