"""SIGKILL at every failpoint of the store, and what the next start then finds.

A child process does one scripted life of a root and dies at the armed name;
the parent opens the root and compares.  Every failpoint of the store is
reached, or its test fails; those of an arrival in pieces in `test_part_crashes`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.support import Claims, names_in, tree_of
from weightd.failpoints import NAMES, VARIABLE
from weightd.store import PinDatabase, ScanReport, Store

LIFE = """
import os, sys
from dataclasses import replace
from pathlib import Path
from tests.store.support import put
from weightd.failpoints import from_environment
from weightd.model import Pin
from weightd.store import PinDatabase, Store

def said(what):
    print(what, flush=True)

root = Path(sys.argv[1])
reach = from_environment(os.environ)
store = Store.open(root, reach=reach)
first = put(store, 'm', {'a/x': b'1' * 5000, 'y': b'old'}, sequence=1)
said('first published')
pins = PinDatabase.open(store.state_path, reach)
pins.put(Pin('h', first.id, 1.0), 'boot').result()
said('pinned')
second = put(store, 'm', {'a/x': b'2' * 5000, 'y': b'new'}, sequence=2)
said('second published')
store.mark_superseded(first.id)
said('retired')
store.restore(replace(first, sequence=3))
said('unretired')
pins.remove('h', first.id).result()
said('unpinned')
doomed = store.doom([first.id, second.id])
said('doomed')
for one in doomed:
    assert store.unlink(one, lambda freed: None) == 0
said('unlinked')
"""

FIRST = {"a/x": b"1" * 5000, "y": b"old"}
SECOND = {"a/x": b"2" * 5000, "y": b"new"}
ELSEWHERE = {name for name in NAMES if name.startswith("part.")} | {
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


def live(root: Path, failpoint: str) -> list[str]:
    """Run the life until it dies; what it had said by then."""
    ran = subprocess.run(
        [sys.executable, "-c", LIFE, str(root)],
        env={VARIABLE: failpoint},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, f"{failpoint} was not reached: {ran.stderr}"
    return ran.stdout.splitlines()


@pytest.mark.parametrize(("name", "count"), DEATHS)
def test_what_was_acknowledged_is_there_after_a_kill(root: Path, name: str, count: int) -> None:
    said = live(root, f"{name}:{count}")
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
