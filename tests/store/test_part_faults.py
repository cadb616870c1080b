"""The disk fails at any one call of an arrival in pieces, or from that call on.

Whatever it was, one of our errors says so; given up, the arrival's bytes are
all accounted for, and left as they are, the next start goes on to the right
content.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.support import Claims, Ledger, du, manifest_of, names_in, put, tree_of
from tests.system.tiers import THOROUGH
from weightd.errors import DigestMismatch, IoError
from weightd.model import FileEntry, Key, Manifest
from weightd.store import Ingest, NoSpace, Parked, Part, StillThere, Store

KEY = Key("m")
CONTENTS = {"a/w": random.Random(1).randbytes(30_000), "x": b"y" * 9_000, "empty": b""}
SHARED = {"s": b"shared" * 1000}

CALLS = (
    "open", "read", "write", "pwrite", "preadv", "ftruncate", "fchmod",
    "mkdir", "rename", "unlink", "link", "stat", "fstat", "scandir",
)  # fmt: skip


def well(call: int) -> int | None:
    return None


class Disk:
    """Counts the calls to the disk, and fails from the one that is chosen on."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors: Callable[[int], int | None] = well

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            patch.setattr(os, name, self._failing(getattr(os, name)))
        # Nothing is lost here but by these errors.
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._failing(lambda _: None))

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            error = self.errors(self.calls)
            if error is not None:
                raise OSError(error, os.strerror(error))
            return call(*args, **kwargs)

        return failing


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    disk.watch(monkeypatch)
    return disk


def once(number: int) -> Callable[[int], int | None]:
    return lambda call: errno.EIO if call == number else None


def from_then_on(number: int) -> Callable[[int], int | None]:
    return lambda call: errno.ENOSPC if call >= number else None


def part_of(ingest: Ingest, path: str, ledger: Ledger) -> Part:
    return ingest.part(path, len(CONTENTS[path]), claim=ledger.claim, wrote=ledger.wrote)


def write(part: Part, start: int, stop: int) -> None:
    part.write(start, memoryview(CONTENTS[part.path])[start:stop])


def begin(ingest: Ingest, ledger: Ledger) -> Parked:
    ingest.note(b"{}")
    part, other = part_of(ingest, "a/w", ledger), part_of(ingest, "x", ledger)
    write(part, 10_000, 20_000)
    part.flush()
    write(part, 0, 1_000)
    write(other, 0, 9_000)
    with pytest.raises(DigestMismatch):
        other.seal("0" * 64)
    write(other, 2_000, 9_000)
    return ingest.park()


def complete(store: Store, ingest: Ingest, source: Manifest, ledger: Ledger) -> None:
    entries = []
    (shared,) = source.files
    with_it = FileEntry("b/s", shared.bytes, shared.sha256)
    try:
        entries.append(ingest.link(with_it, source.id, "s", wrote=ledger.wrote))
    except FileNotFoundError:
        # What cannot be linked arrives.
        part = ingest.part("b/s", shared.bytes, claim=ledger.claim, wrote=ledger.wrote)
        part.write(0, memoryview(SHARED["s"]))
        entries.append(part.seal(shared.sha256))
    for part in [part_of(ingest, path, ledger) for path in CONTENTS]:
        for start, stop in part.missing():
            write(part, start, stop)
        # With no digest to compare with: a byte that is not here would end in the model.
        entries.append(part.seal(None))
    store.publish(ingest, manifest_of(KEY, sorted(entries), 2))


def live(store: Store, source: Manifest, begun: list[Ingest]) -> None:
    """An arrival that is parked and resumed."""
    ledger = Ledger()
    begun.append(store.begin(KEY))
    begun[-1].make()
    parked = begin(begun[-1], ledger)
    begun.append(store.begin(KEY, resume=parked))
    begun[-1].make()
    complete(store, begun[-1], source, ledger)


@pytest.mark.parametrize("give_up", [True, False], ids=["given up", "left"])
@pytest.mark.parametrize("fault", [once, from_then_on])
def test_a_disk_that_fails_at_any_call(
    tmp_path: Path, disk: Disk, fault: Callable[[int], Callable[[int], int | None]], give_up: bool
) -> None:
    for number in itertools.count(1, 1 if THOROUGH else 3):
        root = tmp_path / str(number)
        disk.errors = well
        with Store.open(root) as store:
            source = put(store, "source", SHARED)
            begun: list[Ingest] = []
            disk.calls = 0
            disk.errors = fault(number)
            try:
                live(store, source, begun)
            except (IoError, NoSpace, StillThere):
                for ingest in begun:
                    leave(ingest, give_up)
            passed = disk.calls < number
            disk.errors = well
            if give_up:
                clean_up(store, begun)
        goes_on(root, source, give_up)
        if passed:
            return


def leave(ingest: Ingest, give_up: bool) -> None:
    if give_up:
        ingest.abort()
    else:
        ingest.settle()


def clean_up(store: Store, begun: list[Ingest]) -> None:
    """The disk is well again: what was given up goes, and not more than was counted."""
    for ingest in begun:
        if ingest.remains is not None:
            freed = Claims()
            assert store.unlink(ingest.remains, freed) == 0
            assert freed.total <= ingest.remains.bytes


def published(store: Store) -> str:
    (name,) = (name for name in names_in(store, "models") if name.startswith("m."))
    return name


def goes_on(root: Path, source: Manifest, given_up: bool) -> None:
    with Store.open(root) as store:
        report = store.scan()
        assert not any((report.damaged, report.foreign))
        if KEY not in [one.manifest.key for one in report.models]:
            for parked in report.parked:
                assert parked.bytes == du(root / "incoming" / parked.id / "m")
            resume = report.parked[0] if report.parked else None
            with store.begin(KEY, resume=resume) as ingest:
                complete(store, ingest, source, Ledger())
        assert tree_of(root / "models" / published(store) / "m") == {**CONTENTS, "b/s": SHARED["s"]}
        for debris in report.debris:
            freed = Claims()
            assert store.unlink(debris, freed) == 0
            assert freed.total == debris.bytes
        assert names_in(store, "incoming") == names_in(store, "doomed") == []
