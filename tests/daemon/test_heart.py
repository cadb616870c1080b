"""The watchdog is fed by a probe that passed, and by nothing else."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.notified import Manager, manager
from tests.system.daemon import running
from tests.system.faults import Fault, failing
from weightd.daemon.heart import watchdog_seconds
from weightd.daemon.notify import notify

CAPACITY = 4096 * 2500

WATCHDOG = 0.6
"""Seconds; a beat comes three times as often."""

FLUSH = Fault("flush", ("fsync",))
WRITE = Fault("write", ("pwrite64",), by_path=True)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Manager]:
    with manager(tmp_path) as watching:
        watching.environ["WATCHDOG_USEC"] = f"{WATCHDOG * 1e6:.0f}"
        yield watching


@pytest.mark.needs("strace")
def test_a_disk_that_fails_is_not_fed_for_and_one_that_is_full_is(
    root: Path, watched: Manager
) -> None:
    with running(root, capacity=CAPACITY, environ=watched.environ) as daemon:
        assert watched.hears("READY=1")["STATUS"].startswith("ready: 0 models, 0 B of 10.2 MB")
        watched.hears("WATCHDOG=1")
        assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201
        while "ready: 1 model, 4.1 kB of 10.2 MB used" not in watched.hears("WATCHDOG=1")["STATUS"]:
            pass
        with failing(daemon, FLUSH, "EIO"):
            while not (said := watched.next().get("STATUS", "")).startswith("unwell: "):
                pass
            assert f"a small flushed write in {root} failed: Input/output error" in said
            health = daemon.client.call("GET", "/healthz")
            assert (health.status, health.json()["code"]) == (503, "unhealthy")
            assert "a small flushed write" in health.json()["detail"]
            assert watched.quiet("WATCHDOG", 2 * WATCHDOG)
        watched.hears("WATCHDOG=1")
        assert daemon.client.call("GET", "/healthz").status == 200
        with failing(daemon, WRITE, "ENOSPC"):
            for _ in range(3):
                watched.hears("WATCHDOG=1")
        assert daemon.stop() == 0
        assert daemon.said().count("unwell: ") == 1
        assert daemon.said().count("well again") == 1


def test_a_reload_is_told_from_its_begin_to_its_end(root: Path, watched: Manager) -> None:
    with running(root, capacity=CAPACITY, environ=watched.environ) as daemon:
        watched.hears("READY=1")
        daemon.process.send_signal(signal.SIGHUP)
        assert int(watched.hears("RELOADING=1")["MONOTONIC_USEC"]) > 0
        assert watched.hears("READY=1")["STATUS"].startswith("ready: ")
        assert daemon.stop() == 0


def test_more_time_is_asked_for_while_it_starts(root: Path, watched: Manager) -> None:
    with running(root, capacity=CAPACITY, environ=watched.environ) as daemon:
        first = watched.next()
        assert first["STATUS"] == f"starting: reading what is in {root}"
        assert int(first["EXTEND_TIMEOUT_USEC"]) > 0
        watched.hears("READY=1")
        assert daemon.stop() == 0


@pytest.mark.parametrize("given", ["", "0", "-5", "soon", "²"])
def test_a_watchdog_that_means_nothing_is_none(given: str) -> None:
    assert watchdog_seconds({"WATCHDOG_USEC": given}, 7) is None


def test_who_has_no_descriptor_left_goes_on_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/nobody")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        notify("WATCHDOG=1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
