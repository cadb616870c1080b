"""A filesystem that fills, from outside and from inside, of each kind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.filesystems.disks import KINDS, MB, available
from tests.filesystems.neighbour import Neighbour, watched
from tests.polling import until
from tests.system.daemon import Answer, Daemon, running
from tests.tiers import THOROUGH
from weightd.client import Client
from weightd.errors import DiskFull

MODEL: Final = 16 * MB
MODELS: Final = 8
MIN_FREE: Final = 64 * MB

SOME: Final = [one for one in KINDS if THOROUGH or one.values[0] in ("ext4", "btrfs")]
"""One that frees at once, and one that is late; arrivals fill each kind in every run."""

SLACK: Final = 4 * MB
"""What a filesystem may take for itself besides the blocks of files."""


def serve(disk: Path, min_free: int) -> Any:
    options = ("--min-free", str(min_free))
    return running(disk / "root", capacity=None, options=("--capacity", "100%", *options))


def put(daemon: Daemon, key: str, size: int = MODEL) -> Answer:
    return daemon.client.call("PUT", f"/v1/models/{key}", os.urandom(size))


def keys(daemon: Daemon) -> list[str]:
    return [one["key"] for one in daemon.client.get("/v1/models")["models"]]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("disk", SOME, indirect=True)
def test_what_others_take_is_given_up_and_not_more(disk: Path) -> None:
    neighbour = Neighbour(disk)
    with serve(disk, MIN_FREE) as daemon:
        for number in range(MODELS):
            assert put(daemon, f"m{number}").status == 201
        # The one unused for longest is pinned.
        assert daemon.client.call("PUT", "/v1/pins/replica/m0").status == 201
        # Not measured afterwards: by then the first may have gone.
        neighbour.write(available(disk) - MIN_FREE + int(2.5 * MODEL))
        wanted = 3
        until(lambda: available(disk) >= MIN_FREE, daemon.said)
        until(lambda: daemon.client.status()["doomed_bytes"] == 0, daemon.said)
        journal = daemon.client.get("/v1/evictions")["evictions"]
        assert [one["reason"] for one in journal] == ["disk"] * wanted
        assert [one["key"] for one in journal] == [f"m{n}" for n in range(1, wanted + 1)]
        assert "m0" in keys(daemon)
        assert daemon.stop() == 0


@pytest.mark.timeout(240)
def test_arrivals_never_take_what_is_to_stay_free(disk: Path) -> None:
    with serve(disk, MIN_FREE) as daemon, watched(disk) as least:
        for number in range(3 * MODELS):
            answer = put(daemon, f"m{number}")
            # Where freeing is seen late a put may find no room that the disk admits to.
            assert answer.status == 201 or answer.json()["code"] == "disk-full", answer
        assert daemon.client.get("/v1/evictions")["evictions"] != []
        assert least.looks > 0
        assert least.bytes >= MIN_FREE - SLACK
        assert daemon.stop() == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("disk", SOME, indirect=True)
def test_on_a_disk_that_others_filled_everything_but_writing_goes_on(disk: Path) -> None:
    neighbour = Neighbour(disk)
    with serve(disk, 0) as daemon:
        assert put(daemon, "kept").status == 201
        assert daemon.client.call("PUT", "/v1/pins/replica/kept").status == 201
        path = Path(daemon.client.get("/v1/models/kept")["path"])
        neighbour.fill()
        # More than what is pinned would give back: it is the disk that is short, not the budget.
        refused = put(daemon, "wanted", MODEL + 4 * MB)
        assert (refused.status, refused.json()["code"]) == (507, "disk-full")
        assert refused.json()["others"] > 0
        unable = [daemon.client.call("PUT", f"/v1/pins/r{n}/kept") for n in range(3)]
        # A filesystem may still have blocks for the database.
        assert all(one.status == 201 or code(one) == "state-unwritable" for one in unable)
        assert daemon.client.call("GET", "/v1/models/kept").status == 200
        assert daemon.client.call("GET", "/healthz").status == 200
        assert sum(1 for _ in path.iterdir()) == 1
        neighbour.leave()
        until(lambda: put(daemon, "wanted").status == 201, daemon.said)
        assert daemon.client.call("PUT", "/v1/pins/again/kept").status == 201
        assert set(keys(daemon)) == {"kept", "wanted"}
        assert daemon.stop() == 0


def code(answer: Answer) -> str:
    told: str = answer.json()["code"]
    return told


@pytest.mark.parametrize("disk", KINDS[:1], indirect=True)
def test_a_writer_whose_disk_fills_under_him_is_told_so_by_the_daemon(
    disk: Path, tmp_path: Path
) -> None:
    """What he was promised is not there any more; he has not half a model either."""
    neighbour, source = Neighbour(disk), tmp_path / "model"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(os.urandom(MODEL))
    with serve(disk, 0) as daemon, Client(daemon.socket) as client:

        def fill(_: object) -> None:
            if not (disk / "full").exists():
                (disk / "full").touch()
                neighbour.fill()

        with pytest.raises(DiskFull) as full:
            client.put("m", source, progress=fill)
        assert full.value.others > 0
        neighbour.leave()
        assert client.put("m", source).bytes == 2 * MODEL
        assert daemon.client.get("/v1/uploads")["uploads"] == []
        assert daemon.stop() == 0
