"""A filesystem in user space: no leases, and errors of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tests.filesystems.passthrough as passthrough
from tests.filesystems.disks import run
from tests.polling import WITHIN, until
from tests.store.support import MAPS, process
from tests.system.daemon import Daemon, running
from tests.system.journal import Journal, settled, verify
from tests.system.metrics import agree
from tests.system.models import blocks_of, single
from tests.system.troubled import Troubled
from tests.tiers import THOROUGH

pytestmark = [pytest.mark.needs("root", "fusermount3", "fuse", "flock"), pytest.mark.timeout(240)]

SIZE = 100_000
CAPACITY = 4 * 102_400

OPERATIONS = ("open", "create", "write", "fsync", "rename", "unlink", "mkdir", "getattr", "statfs")

HOLDS = "import sys; print('ready', flush=True); sys.stdin.read()"


class Faults:
    """What the filesystem fails at the moment."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.none()

    def none(self) -> None:
        self._set("")

    def fail(self, operation: str, error: str) -> None:
        self._set(f"{operation} {error}\n")

    def _set(self, lines: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(lines)
        fresh.rename(self._file)


@contextmanager
def mounted(place: Path) -> Iterator[tuple[Path, Faults]]:
    """A directory shown through a process, which ends with the mount."""
    behind, point = place / "behind", place / "shown"
    behind.mkdir()
    point.mkdir()
    faults = Faults(place / "faults")
    program = [sys.executable, passthrough.__file__, str(behind), str(point), str(place / "faults")]
    server = subprocess.Popen(program)
    try:
        until(lambda: os.path.ismount(point) or server.poll() is not None)
        assert server.poll() is None
        yield point, faults
        faults.none()
    finally:
        run("fusermount3", "-u", str(point))
        server.wait(WITHIN)


def test_what_is_said_of_use_is_what_is_seen(tmp_path: Path) -> None:
    """Some kernels give leases on such a filesystem and some do not; either is said."""
    with mounted(tmp_path) as (point, _), running(point, capacity=CAPACITY) as daemon:
        protects_what_it_says(daemon, daemon.client.status()["in_use_detection"]["leases"])
        assert daemon.stop() == 0


@pytest.mark.needs("strace")
def test_where_there_are_no_leases_pins_and_holds_count(root: Path) -> None:
    """The probe at the start is refused, as on a network filesystem."""
    # -D: the tracer goes with the daemon, and not the other way round.
    prefix: tuple[str, ...] = (
        "strace",
        "-D",
        "-f",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        "trace=fcntl",
    )
    prefix = (*prefix, "-e", "inject=fcntl:error=EINVAL", "-P", str(root / "FORMAT"))
    with running(root, capacity=CAPACITY, prefix=prefix) as daemon:
        protects_what_it_says(daemon, False)
        assert daemon.stop() == 0


def protects_what_it_says(daemon: Daemon, seen: bool) -> None:
    """Pins and holds count anyway; a mapping does where use is ``seen``."""
    assert daemon.client.status()["in_use_detection"] == {"leases": seen, "holds": True}
    metrics = daemon.client.call("GET", "/metrics").body.decode()
    assert f"weightd_in_use_detection {float(seen)}" in metrics
    life = Troubled(daemon.client, Journal())
    for key in ("pinned", "held", "idle"):
        life.put(key, single(key, SIZE))
    life.pin("replica", "pinned")
    path = daemon.client.get("/v1/models/held")["path"]
    hold = ("flock", "-s", path, sys.executable, "-c", HOLDS)
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        idle = Path(daemon.client.get("/v1/models/idle")["path"])
        with process(MAPS, idle / "idle"):
            answer = daemon.client.call("DELETE", "/v1/models/idle")
            assert (answer.status == 409) is seen, answer
        if seen:
            wait_for_delete(daemon, "idle")
        life.journal.models["idle"] = {None}
        refused = daemon.client.call("PUT", "/v1/models/large", b"l" * (3 * SIZE))
        assert (refused.status, refused.json()["code"]) == (503, "blocked")
        for key, code in (("pinned", "pinned"), ("held", "in-use")):
            answer = daemon.client.call("DELETE", f"/v1/models/{key}")
            assert (answer.status, answer.json()["code"]) == (409, code)
    verify(daemon, life.journal)


def wait_for_delete(daemon: Daemon, key: str) -> None:
    """The filesystem learns a moment later that nobody has a file open any more."""
    until(lambda: daemon.client.call("DELETE", f"/v1/models/{key}").status == 204, daemon.said)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"] if THOROUGH else ["EIO"])
def test_each_operation_that_fails_is_answered_and_leaves_nothing(
    tmp_path: Path, error: str
) -> None:
    with (
        mounted(tmp_path) as (point, faults),
        running(point, capacity=CAPACITY) as daemon,
    ):
        life = Troubled(daemon.client, Journal())
        life.put("kept", single("kept", SIZE))
        life.pin("replica", "kept")
        for number, operation in enumerate(OPERATIONS):
            life.journal.may_be_evicted(life.journal.models)
            for key in ("a", "b"):
                life.put(key, single(key, SIZE, number))
            # What a fault keeps on the disk would be waited for.
            settled(daemon)
            faults.fail(operation, error)
            life.journal.may_be_evicted(life.journal.models)
            everything(daemon, life, number)
            faults.none()
            settled(daemon)
            verify(daemon, life.journal)
            agree(daemon)
        assert "Traceback" not in daemon.log.read_text()
        assert daemon.stop() == 0


def everything(daemon: Daemon, life: Troubled, number: int) -> None:
    """What a client does; any of it may be refused in documented words."""
    life.asks("/v1/models/kept")
    life.asks("/v1/content/kept?file=kept")
    life.tries(life.put, f"fits-{number}", single(f"fits-{number}", 1_000))
    life.tries(life.pin, "another", "kept")
    if life.journal.pins.get(("another", "kept"), {None}) != {None}:
        life.tries(life.unpin, "another", "kept")
    life.tries(life.delete, "a")
    life.asks("/v1/status")
    life.asks("/metrics")
    assert daemon.client.call("GET", "/readyz").status == 200
    # Looked at behind the filesystem, which fails us as well.
    assert blocks_of(daemon.root.parent / "behind") <= CAPACITY
