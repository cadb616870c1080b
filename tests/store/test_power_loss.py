"""The power goes at any instant of an arrival in pieces; the next start goes on or begins anew.

What a seal takes without a digest to compare with is the strictest check: a
byte that is taken for being here and is not ends in the model.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.power import Disk
from tests.store.support import Ledger, begun, manifest_of, put, tree_of
from tests.system.tiers import THOROUGH
from weightd.errors import DigestMismatch
from weightd.model import FileEntry, Key, Manifest
from weightd.store import Ingest, Part, Store

KEY = Key("m")
WAYS = 16 if THOROUGH else 4
"""Of losing power at each instant."""

CONTENTS = {"a/w": os.urandom(20_000), "x": os.urandom(9_000), "empty": b""}
SHARED = os.urandom(5_000)


@pytest.fixture
def disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(root, monkeypatch)
    yield disk
    disk.close()


class Life:
    """Runs an arrival and loses the power at every failpoint it passes, in several ways."""

    def __init__(self, root: Path, disk: Disk, images: Path) -> None:
        self._root = root
        self._disk = disk
        self._images = images
        self._chance = random.Random(1)
        self.left: list[tuple[str, Path, bool]] = []
        """For each loss: where it was, what it left, and whether the model had been published."""
        self.published = False
        disk.before_flush = lambda: self.reach("flush")

    def reach(self, name: str) -> None:
        for way in range(WAYS):
            image = self._images / f"{len(self.left)}-{way}"
            self._disk.lose_power(image, self._chance)
            self.left.append((name, image, self.published))

    def open(self, boot: str) -> Store:
        return Store.open(self._root, boot=boot, reach=self.reach)


def part_of(ingest: Ingest, path: str) -> Part:
    ledger = Ledger()
    return ingest.part(path, len(CONTENTS[path]), claim=ledger.claim, wrote=ledger.wrote)


def write(part: Part, start: int, stop: int) -> None:
    part.write(start, memoryview(CONTENTS[part.path])[start:stop])


def complete(store: Store, ingest: Ingest, source: Manifest) -> Manifest:
    """Bring an arrival to its end from wherever it is, with no digest to compare with."""
    parts = [part_of(ingest, path) for path in CONTENTS]
    entries = [
        ingest.link(
            FileEntry("shared", len(SHARED), hashlib.sha256(SHARED).hexdigest()), source.id, "s"
        )
    ]
    for part in parts:
        for start, stop in part.missing():
            write(part, start, stop)
        entries.append(part.seal(None))
    manifest = manifest_of(KEY, sorted(entries), 2)
    store.publish(ingest, manifest)
    return manifest


def arrive(store: Store, source: Manifest) -> None:
    """Everything that can happen to an arrival, up to its being parked."""
    ingest = begun(store, KEY)
    ingest.note(b"first")
    part, other = part_of(ingest, "a/w"), part_of(ingest, "x")
    write(part, 12_000, 20_000)
    write(part, 0, 700)
    part.flush()
    write(part, 700, 3_000)
    ingest.note(b"second")
    write(other, 500, 9_000)
    other.flush()
    # What was said up to here is flushed as well.
    ingest.remove("elsewhere", wrote=lambda _: None)
    write(other, 0, 500)
    with pytest.raises(DigestMismatch):
        other.seal("0" * 64)
    write(other, 4_000, 9_000)
    ingest.park()


def test_a_power_loss_at_any_instant(root: Path, disk: Disk, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    with Store.open(root) as store:
        source = put(store, "source", {"s": SHARED})
    life = Life(root, disk, images)
    with life.open("first") as store:
        arrive(store, source)
    with life.open("second") as store:
        (parked,) = store.scan().parked
        with store.begin(KEY, resume=parked) as ingest:
            complete(store, ingest, source)
            life.published = True
            life.reach("published")
    names = {name for name, _, _ in life.left}
    assert names >= {"ingest.noted", "ingest.parked", "ingest.linked", "publish.tidied"}
    assert names >= {"part.written", "part.flushed", "part.forgotten", "publish.renamed"}
    disk.before_flush = None
    for name, image, published in life.left:
        goes_on(image, source, name, published)


def goes_on(image: Path, source: Manifest, name: str, published: bool) -> None:
    with Store.open(image, boot="after the loss") as store:
        report = store.scan()
        assert not any((report.damaged, report.foreign)), name
        found = {one.manifest.key: one.manifest for one in report.models}
        assert found.keys() >= {source.key}
        if published:
            assert KEY in found, name
        if KEY in found:
            assert not report.parked
            manifest = found[KEY]
        else:
            resume = report.parked[0] if report.parked else None
            with store.begin(KEY, resume=resume) as ingest:
                manifest = complete(store, ingest, source)
        assert tree_of(store.path_of(manifest.id)) == {**CONTENTS, "shared": SHARED}, name
        for debris in report.debris:
            assert store.unlink(debris, lambda _: None) == 0
