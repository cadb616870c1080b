"""Every call of a disk that fails under a daemon: what it answers, and that nothing is left of it.

One daemon meets one fault after the other, each while an arrival is under way
and a client does everything there is.  Once the fault is gone the daemon is as
good as new, without a restart.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.polling import until_nothing
from tests.store.support import MAPS, process
from tests.system.daemon import Daemon, running
from tests.system.faults import FAULTS, Fault, failing
from tests.system.journal import Journal, pins, settled, verify
from tests.system.metrics import agree
from tests.system.models import blocks_of, directory, single
from tests.system.troubled import Arrival, Aside, Troubled

SIZE: Final = 100_000
CAPACITY: Final = 7 * 102_400
"""Seven such models in whole blocks: two stay, three may go, and one arrives."""

CUT: Final = 76_000
"""In the midst of the second file of an archive of `SIZE` bytes."""

REFUSED_BY: Final = {
    "open": {"blocked", "in-use"},
    "write": {"state-unwritable"},
    "fsync": {"state-unwritable"},
    "rename": set(),
    "unlink": set(),
    "mkdir": set(),
    "statvfs": {"io-error"},
    "stat": {"blocked", "in-use"},
    "list": {"blocked", "in-use"},
}
"""What a fault may bring beside what the disk says: that it cannot be told who uses what."""


@pytest.mark.needs("strace")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_each_call_that_fails_is_answered_and_leaves_nothing(root: Path, error: str) -> None:
    with running(root, capacity=CAPACITY) as daemon, ExitStack() as stack:
        life = Troubled(daemon.client, Journal())
        for key in ("kept", "used"):
            life.put(key, single(key, SIZE))
        life.pin("replica", "kept")
        used = Path(daemon.client.get("/v1/models/used")["path"])
        stack.enter_context(process(MAPS, used / "used"))
        before = open_in(daemon)
        for number, fault in enumerate(FAULTS):
            meet(daemon, life, fault, error, number)
            settled(daemon)
            absorb_evictions(life)
            verify(daemon, life.journal)
            agree(daemon)
            wait_for_open(daemon, before)
        assert "Traceback" not in daemon.log.read_text()
        daemon.kill()
    with running(root, capacity=CAPACITY) as daemon:
        verify(daemon, life.journal)
        assert daemon.stop() == 0


def meet(daemon: Daemon, life: Troubled, fault: Fault, error: str, number: int) -> None:
    """Do everything under one fault; what was acknowledged stands in the journal."""
    as_before(life, number)
    arrival = Arrival(
        life, daemon.root, f"arrival-{number}", directory(f"arrival-{number}", SIZE), CUT
    )
    waiting: list[Aside] = []
    try:
        with failing(daemon, fault, error, more=[arrival.file]):
            waiting += everything(daemon, life, fault, number)
            arrival.finish()
            assert blocks_of(daemon.root) <= CAPACITY
    finally:
        arrival.finish()
        for one in waiting:
            one.join()
    disk = {"EIO": {"io-error"}, "ENOSPC": {"io-error", "disk-full"}}[error]
    assert life.told <= disk | REFUSED_BY[fault.name] | {"pinned", "in-use"}, fault
    assert life.told - {"pinned", "in-use"} or fault.delays, f"{fault} was not met"
    life.told.clear()


def as_before(life: Troubled, number: int) -> None:
    """Three models that may go, of content that is new, and one pin that is yet to be taken."""
    for key in ("a", "b", "c"):
        life.put(key, single(key, SIZE, number))
    life.pin("before", "kept")
    if any(one["holder"] == "after" for one in pins(life.client)):
        life.unpin("after", "kept")
    absorb_evictions(life)


def absorb_evictions(life: Troubled) -> None:
    """What went may be missing, if the daemon's own journal says that it did."""
    gone = {one["generation"] for one in life.client.get("/v1/evictions?limit=1000")["evictions"]}
    for allowed in life.journal.models.values():
        if any(one is not None and one.digest in gone for one in allowed):
            allowed.add(None)


def everything(daemon: Daemon, life: Troubled, fault: Fault, number: int) -> list[Aside]:
    """Every act there is; those that wait until the fault has gone are answered."""
    waiting: list[Aside] = []

    def puts(key: str, size: int, seed: object) -> None:
        waiting.append(Aside(life.tries, life.put, key, single(key, size, seed)))
        if not fault.delays:
            waiting.pop().join()

    life.asks("/v1/models/kept")
    life.asks("/v1/content/kept?file=kept")
    puts(f"fits-{number}", 1_000, 0)
    puts(f"evicts-{number}", SIZE, 0)
    assert blocks_of(daemon.root) <= CAPACITY
    life.tries(life.pin, "after", "kept")
    life.tries(life.unpin, "before", "kept")
    puts("b", SIZE, f"another {number}")
    for key in ("c", "kept", "used"):
        life.tries(life.delete, key)
    puts("kept", SIZE, 0)
    for path in ("status", "models", "pins", "evictions"):
        life.asks(f"/v1/{path}")
    for path in ("/metrics", "/healthz"):
        life.asks(path)
    assert daemon.client.call("GET", "/readyz").status == 200
    assert blocks_of(daemon.root) <= CAPACITY
    return waiting


def open_in(daemon: Daemon) -> Counter[str]:
    """What the daemon has open, connections and all."""
    found: Counter[str] = Counter()
    for descriptor in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        try:
            found[os.readlink(descriptor).partition("[")[0]] += 1
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


def wait_for_open(daemon: Daemon, expected: Counter[str]) -> None:
    """Wait until nothing is open but what is ``expected``: a connection goes after its answer."""
    until_nothing(lambda: _beyond(open_in(daemon), expected))


def _beyond(found: Counter[str], expected: Counter[str]) -> list[Any]:
    return sorted((found - expected).items())
