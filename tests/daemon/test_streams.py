"""Standard streams that are closed, full, or that nobody reads: a daemon lives without them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.daemon.notified import manager
from tests.system.daemon import Client
from tests.system.nursery import HERE, bare_environment

LEFT_OVER = 4096
"""Bytes of the smallest pipe there is."""


@contextmanager
def started(tmp_path: Path, streams: str, *pass_fds: int) -> Iterator[Client]:
    """A daemon, ready, that a shell started with its ``streams``; it ends well when asked to."""
    place = tmp_path / "weightd.sock"
    command = [sys.executable, "-m", "weightd", "serve", "--root", str(tmp_path / "cache")]
    command += ["--socket", str(place), "--listen", "none", "--log-level", "debug"]
    command += ["--capacity", "1000000", "--min-free", "0"]
    with manager(tmp_path) as manager_of:
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" {streams}', "bash", *command],
            cwd=HERE,
            env=bare_environment() | manager_of.environ,
            stdout=subprocess.DEVNULL,
            pass_fds=pass_fds,
        )
        try:
            manager_of.hears("READY=1")
            yield Client(place)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("streams", ["2>&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1"])
def test_a_daemon_needs_no_standard_stream(tmp_path: Path, streams: str) -> None:
    with started(tmp_path, streams) as client:
        assert client.call("PUT", "/v1/models/m", b"weights").status == 201
        assert client.call("GET", "/v1/content/m").body == b"weights"


def test_a_log_that_nobody_reads_stops_nothing_and_tells_what_was_lost(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with closing(os.fdopen(reader, "rb", buffering=0)) as log:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, LEFT_OVER)
        try:
            with started(tmp_path, f"2>&{writer}", writer) as client:
                for _ in range(100):
                    assert client.call("GET", "/healthz").status == 200
                said = log.read(2 * LEFT_OVER)
                assert client.call("GET", "/healthz").status == 200
                said += log.read(2 * LEFT_OVER)
        finally:
            os.close(writer)
    (lost,) = (line for line in said.splitlines() if b"lines were lost" in line)
    assert int(lost.rpartition(b"lines=")[2].split()[0]) > 50
    # What was broken off is a line of its own.
    assert all(b" weightd." in line[:50] or b" asyncio" in line[:50] for line in said.splitlines())
