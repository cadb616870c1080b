"""A disk that loses its far end, or all of itself, under a daemon, and gets it back.

What the kernel makes impossible: a filesystem whose own records could not be
written down (xfs always, btrfs and ext4 once they wanted to) refuses everything
from then on, until it is mounted anew.  Where nothing of that was out of reach,
nobody has to do anything.
"""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from tests.filesystems.backing import Backing, forget, place_of
from tests.filesystems.disks import MAKERS, attached, make
from tests.system.daemon import Daemon, running
from tests.system.journal import Journal, settled, verify
from tests.system.metrics import agree
from tests.system.models import single
from tests.system.troubled import Troubled

pytestmark = [pytest.mark.needs("root", "mount", "losetup", "fsfreeze"), pytest.mark.timeout(240)]

SIZE = 2_000_000
MODELS = 6
CAPACITY = 8 * 2_002_944
"""Eight such models in whole blocks."""

REPLACED = "m1"

NOTHING_LEFT = 4096
"""Where to cut so that no record of any filesystem is left."""


def kinds(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "kind", [pytest.param(name, marks=pytest.mark.needs(MAKERS[name][0])) for name in names]
    )


@kinds("ext4", "xfs")
def test_a_far_end_that_is_lost_costs_nothing_of_what_is_before_it(
    tmp_path: Path, kind: str
) -> None:
    image, root = tmp_path / "image", tmp_path / "root"
    # One with a journal may have had it beyond the cut.
    make(kind, image, *(("-O", "^has_journal") if kind == "ext4" else ()))
    backing = Backing(image, root)
    with attached(kind, image, root), running(root, capacity=CAPACITY) as daemon:
        life = Troubled(daemon.client, Journal())
        files = filled(life)
        places = {key: place_of(file) for key, file in files.items()}
        lost = max(places, key=lambda key: places[key])
        # Not the one that is replaced: pinned, it would stand there twice, and room is for eight.
        kept = min(places.keys() - {REPLACED}, key=lambda key: places[key])
        for holder in ("before", "replica"):
            life.pin(holder, kept)
        life.pin("replica", lost)
        backing.cut(places[lost])
        for key in (lost, kept):
            forget(files[key])
        with pytest.raises(http.client.IncompleteRead):
            daemon.client.call("GET", f"/v1/content/{lost}?file={lost}")
        read = daemon.client.call("GET", f"/v1/content/{kept}?file={kept}")
        assert read.status == 200, (read, places, daemon.said())
        assert read.body == single(kept, SIZE).body
        everything(life, kept)
        backing.grow_back()
        as_good_as_new(daemon, life)
        assert daemon.stop() == 0


@kinds("ext4", "xfs", "btrfs")
def test_a_disk_that_is_gone_is_said_and_nothing_acknowledged_with_it(
    tmp_path: Path, kind: str
) -> None:
    image, root = tmp_path / "image", tmp_path / "root"
    make(kind, image)
    backing = Backing(image, root)
    life: Troubled
    with attached(kind, image, root), running(root, capacity=CAPACITY) as daemon:
        life = Troubled(daemon.client, Journal())
        for file in filled(life).values():
            forget(file)
        for holder in ("before", "replica"):
            life.pin(holder, "m0")
        backing.cut(NOTHING_LEFT)
        everything(life, "m0")
        assert life.told & {"io-error", "state-unwritable"}
        # It has to end, so that the filesystem can be mounted anew.
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()
    backing.grow_back()
    with attached(kind, image, root), running(root, capacity=CAPACITY) as daemon:
        life.client = daemon.client
        as_good_as_new(daemon, life)
        assert daemon.stop() == 0


def filled(life: Troubled) -> dict[str, Path]:
    """Put some models; where the file of each is."""
    files = {}
    for number in range(MODELS):
        key = f"m{number}"
        life.put(key, single(key, SIZE))
        files[key] = Path(life.client.get(f"/v1/models/{key}")["path"]) / key
    return files


def everything(life: Troubled, pinned: str) -> None:
    """What a client does; any of it may be refused in documented words."""
    life.journal.may_be_evicted(life.journal.models)
    for number in range(MODELS):
        life.asks(f"/v1/models/m{number}")
    for number in range(4):
        life.tries(life.put, f"n{number}", single(f"n{number}", SIZE))
    life.tries(life.put, REPLACED, single(REPLACED, SIZE, "another"))
    life.tries(life.pin, "another", pinned)
    life.tries(life.unpin, "before", pinned)
    life.tries(life.delete, "m2")
    for path in ("models", "pins", "evictions", "status"):
        life.asks(f"/v1/{path}")
    assert life.client.call("GET", "/readyz").status == 200


def as_good_as_new(daemon: Daemon, life: Troubled) -> None:
    """What was acknowledged is there, and everything is done that is asked for."""
    settled(daemon)
    verify(daemon, life.journal)
    agree(daemon)
    life.journal.may_be_evicted(life.journal.models)
    life.told.clear()
    for number in range(MODELS):
        life.put(f"again-{number}", single(f"again-{number}", SIZE))
    life.pin("again", "again-5")
    life.unpin("again", "again-5")
    life.delete("again-5")
    assert life.told == set()
    verify(daemon, life.journal)
