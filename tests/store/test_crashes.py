"""SIGKILL at every failpoint of the store, and what the next start then finds.

A child process does one scripted life of a root and dies at the armed name;
the parent opens the root and compares.  Every failpoint of the store is
reached, or its test fails; those of an arrival in pieces in `test_part_crashes`, of
an adoption in `test_adopt_crashes`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.lives import UPLOADED, live
from tests.store.support import Claims, names_in, put, tree_of
from weightd.failpoints import NAMES, from_environment
from weightd.model import Pin
from weightd.store import PinChange, PinDatabase, ScanReport, Store

FIRST = {"a/x": b"1" * 5000, "y": b"old"}
SECOND = {"a/x": b"2" * 5000, "y": b"new"}
ELSEWHERE = {name for name in NAMES if name.startswith(("part.", "adopt."))} | {
    *UPLOADED,
    "ingest.noted",
    "ingest.linked",
    "ingest.parked",
    "publish.tidied",
}
# The passes through each name that are worth dying at: in the first publication, in the second.
DEATHS = [
    (name, count)
    for name in sorted(NAMES - ELSEWHERE)
    for count in ((1, 2) if name.split(".")[0] in ("ingest", "publish", "unlink") else (1,))
] + [("ingest.file-flushed", 3), ("evict.renamed-one", 2)]


RENUMBERED = {3: 1}
"""What came again is the newest."""


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def life(arguments: Sequence[str]) -> None:
    """All that a model and its pins can go through; it says what was done."""
    root, reach = Path(*arguments), from_environment(os.environ)
    store = Store.open(root, reach=reach)
    first = put(store, "m", FIRST, sequence=1)
    say("first published")
    pins = PinDatabase.open(store.state_path, reach)
    pins.apply([PinChange.put(Pin("h", first.id, 1.0), "boot")])
    say("pinned")
    second = put(store, "m", SECOND, sequence=2)
    say("second published")
    store.mark_superseded(first.id)
    say("retired")
    store.restore(replace(first, sequence=3))
    say("unretired")
    pins.apply([PinChange.remove("h", first.id)])
    say("unpinned")
    doomed = store.doom([first.id, second.id])
    say("doomed")
    for one in doomed:
        assert store.unlink(one, lambda freed: None) == 0
    say("unlinked")


@pytest.mark.parametrize(("name", "count"), DEATHS)
def test_what_was_acknowledged_is_there_after_a_kill(root: Path, name: str, count: int) -> None:
    died, said = live(life, root, f"{name}:{count}")
    assert died, f"{name}:{count} was not reached"
    with Store.open(root) as store:
        report = store.scan()
        assert not any((report.damaged, report.foreign))
        check_models(store, report, said)
        check_pins(store, said)
        check_debris(store, report)


def check_models(store: Store, report: ScanReport, said: list[str]) -> None:
    """Rules 4 and 5: whole models only, and every acknowledged one but the victims."""
    found = {
        RENUMBERED.get(one.manifest.sequence, one.manifest.sequence): one for one in report.models
    }
    for sequence, content in ((1, FIRST), (2, SECOND)):
        if sequence in found:
            manifest = found[sequence].manifest
            assert isinstance(store.check(manifest), tuple)
            assert tree_of(store.path_of(manifest.id)) == content
    if "unpinned" not in said:
        # The eviction had not begun.
        assert ("first published" not in said) or 1 in found
        assert ("second published" not in said) or 2 in found
    if said[-1:] == ["retired"]:
        return
    if 1 in found:
        assert found[1].superseded <= ("second published" in said)


def check_pins(store: Store, said: list[str]) -> None:
    pins = PinDatabase.open(store.state_path)
    try:
        held = {stored.pin.holder for stored in pins.load()}
    finally:
        pins.close()
    if "pinned" in said and "unretired" not in said:
        assert held == {"h"}
    if "unpinned" in said:
        assert held == set()


def check_debris(store: Store, report: ScanReport) -> None:
    """Everything that is no model is accounted for, and goes."""
    assert names_in(store, "incoming") == []
    assert names_in(store, "doomed") == sorted(one.id for one in report.debris)
    freed = Claims()
    for one in report.debris:
        assert store.unlink(one, freed) == 0
    assert freed.total == sum(one.bytes for one in report.debris)
    assert names_in(store, "doomed") == []
    assert len(names_in(store, "models")) == len(report.models)


def test_a_start_that_was_killed_is_begun_again(root: Path) -> None:
    """Before FORMAT is in place there is nothing but what the next start makes anyway."""
    root.mkdir()
    (root / "models").mkdir()
    (root / "incoming" / ("0" * 32)).mkdir(parents=True)
    (root / "incoming" / ("0" * 32) / "FORMAT").write_text("")
    with Store.open(root) as store:
        (debris,) = store.scan().debris
        assert debris.bytes == 0
        assert store.unlink(debris, Claims()) == 0
    assert (root / "FORMAT").read_text() == "1\n"
