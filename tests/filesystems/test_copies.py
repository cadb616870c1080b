"""A model copied within a filesystem: its blocks are shared where they can be, and its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from tests.filesystems.disks import KINDS, MB, available, kind_of, run
from tests.polling import until
from tests.system.daemon import Daemon, running

SIZE: Final = 48 * MB + 1234
CAPACITY: Final = 128 * MB
SHARING: Final = frozenset({"btrfs", "xfs"})
KEY: Final = "org/model"


def fetched(daemon: Daemon, source: Path) -> Path:
    body = json.dumps({"key": KEY, "source": f"file://{source}"}).encode()
    headers = {"Content-Type": "application/json"}
    answer = daemon.client.call("POST", "/v1/fetch?wait=60", body, headers)
    assert answer.status == 200, answer
    return Path(answer.json()["file"])


@pytest.mark.needs("filefrag")
def test_a_copy_costs_no_blocks_where_they_can_be_shared_and_is_nobody_elses(disk: Path) -> None:
    shared = disk / "shared"
    shared.mkdir()
    source = shared / "model.bin"
    content = os.urandom(SIZE)
    source.write_bytes(content)
    os.sync()
    before = available(disk)
    options = ("--import-roots", str(shared))
    with running(disk / "root", capacity=CAPACITY, options=options) as daemon:
        path = fetched(daemon, source)
        status = daemon.client.status()
        assert status["used_bytes"] >= SIZE
        assert status["others_bytes"] >= 0
        took = before - available(disk)
        if kind_of(disk) in SHARING:
            assert took < SIZE // 4
            assert "shared" in run("filefrag", "-v", str(path))
        else:
            assert took >= SIZE
        # Whoever publishes in place changes the source alone, ...
        with source.open("r+b") as file:
            file.write(b"another")
            os.fsync(file.fileno())
        assert path.read_bytes() == content
        assert source.read_bytes() == b"another" + content[7:]
        # ... and an eviction takes none of it away.
        assert daemon.client.call("DELETE", f"/v1/models/{KEY}").status == 204
        assert source.read_bytes() == b"another" + content[7:]
        # Though the disk gives nothing back, the budget does.
        until(lambda: daemon.client.status()["used_bytes"] < SIZE)
        fetched(daemon, source)
        assert daemon.stop() == 0


@pytest.mark.parametrize("disk", KINDS[:1], indirect=True)
def test_what_the_kernel_does_not_copy_is_read_and_written(disk: Path, tmp_path: Path) -> None:
    shared = tmp_path / "elsewhere"
    shared.mkdir()
    source = shared / "model.bin"
    source.write_bytes(os.urandom(5 * MB + 1))
    options = ("--import-roots", str(shared))
    with running(disk / "root", capacity=CAPACITY, options=options) as daemon:
        assert fetched(daemon, source).read_bytes() == source.read_bytes()
        assert daemon.stop() == 0
