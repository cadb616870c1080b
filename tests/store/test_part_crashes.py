"""SIGKILL at every failpoint of an arrival in pieces, and what the next start goes on with.

What was written by then is not written again: the page cache outlives the
process.  The child of each test makes the same model as the parent goes on to.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from tests.store.lives import UPLOADED, live
from tests.store.support import Claims, Ledger, begun, du, manifest_of, names_in, put, tree_of
from tests.system.tiers import THOROUGH
from weightd.failpoints import NAMES, from_environment
from weightd.model import FileEntry, Key, Manifest
from weightd.store import Ingest, Part, Store
from weightd.store.spans import Spans

KEY = Key("m")
CONTENTS = {"a/w": random.Random(1).randbytes(300_000), "x": b"y" * 9_000, "empty": b""}
SHARED = {"s": b"shared" * 1000}

PART_FAILPOINTS = {
    name for name in NAMES - UPLOADED if name.partition(".")[0] in ("ingest", "part", "publish")
}
OCCURRENCES = {"part.written": (1, 4, 7), "part.forgotten": (1,), "ingest.file-written": (1, 3)}
"""The passes through a name that are worth dying at, where these are not the first two."""


def part_of(ingest: Ingest, path: str, ledger: Ledger) -> Part:
    return ingest.part(path, len(CONTENTS[path]), claim=ledger.claim, wrote=ledger.wrote)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write(part: Part, start: int, stop: int) -> str:
    part.write(start, memoryview(CONTENTS[part.path])[start:stop])
    said = f"wrote {part.path} {start} {stop}"
    say(said)
    return said


def twice(before: list[str], after: list[str]) -> bool:
    """Whether a byte was written before and after."""
    spans: dict[str, Spans] = {path: Spans() for path in CONTENTS}
    for line in before:
        if line.startswith("wrote"):
            _, path, start, stop = line.split()
            spans[path].add(int(start), int(stop))
    again = [line.split() for line in after]
    return any(spans[path].within(int(start), int(stop)) for _, path, start, stop in again)


def complete(store: Store, ingest: Ingest, source: Manifest, ledger: Ledger) -> list[str]:
    """Bring an arrival to its end from wherever it is; what was written.

    With no digest to compare with, a byte that is not here would end in the model.
    """
    written = []
    (shared,) = source.files
    entries = [ingest.link(FileEntry("b/s", shared.bytes, shared.sha256), source.id, "s")]
    for part in [part_of(ingest, path, ledger) for path in CONTENTS]:
        for start, stop in part.missing():
            written.append(write(part, start, stop))
        entries.append(part.seal(None))
    store.publish(ingest, manifest_of(KEY, sorted(entries), 2))
    say("published")
    return written


def life(arguments: Sequence[str]) -> None:
    """All that an arrival in pieces can go through; it says what was done."""
    root, reach = Path(*arguments), from_environment(os.environ)
    ledger = Ledger()
    with Store.open(root) as store:
        source = put(store, "source", SHARED)
    with Store.open(root, reach=reach) as store:
        ingest = begun(store, KEY)
        ingest.note(b"{}")
        say("noted")
        ingest.note(b"{}")
        part, other = part_of(ingest, "a/w", ledger), part_of(ingest, "x", ledger)
        write(part, 100_000, 200_000)
        other.write(0, memoryview(CONTENTS["x"]))
        write(part, 0, 1_000)
        part.flush()
        other.discard()
        write(part, 1_000, 2_000)
        parked = ingest.park()
        with store.begin(KEY, resume=parked) as ingest:
            complete(store, ingest, source, ledger)


def die(root: Path, failpoint: str) -> list[str] | None:
    """Live until the failpoint; what was said by then, None when it was not reached."""
    died, said = live(life, root, failpoint)
    return said if died else None


@pytest.mark.parametrize("name", sorted(PART_FAILPOINTS))
def test_an_arrival_in_pieces_is_gone_on_with_after_a_kill(tmp_path: Path, name: str) -> None:
    for occurrence in count(1) if THOROUGH else OCCURRENCES.get(name, (1, 2)):
        root = tmp_path / str(occurrence)
        said = die(root, f"{name}:{occurrence}")
        if said is None:
            assert occurrence > 1, f"{name} was not reached"
            break
        goes_on(root, said)


def goes_on(root: Path, said: list[str]) -> None:
    with Store.open(root) as store:
        report = store.scan()
        assert not any((report.damaged, report.foreign))
        found = {one.manifest.key: one.manifest for one in report.models}
        source = found.pop(Key("source"))
        assert ("published" not in said) or KEY in found
        if KEY in found:
            assert not any((report.parked, report.debris))
        elif report.parked:
            (parked,) = report.parked
            # A model that was linked costs nothing, and is linked again.
            place = root / "incoming" / parked.id / "m"
            assert parked.bytes == du(place)
            assert not any(file.lstat().st_nlink > 1 for file in place.rglob("*") if file.is_file())
            ledger = Ledger()
            with store.begin(KEY, resume=parked) as ingest:
                written = complete(store, ingest, source, ledger)
            assert not twice(said, written)
            sizes = [store.blocks(len(content)) for content in CONTENTS.values()]
            assert parked.bytes + ledger.written == sum(sizes)
        else:
            # Nothing of it had to be there, or nothing was.
            assert not any(line.startswith("wrote") for line in said)
            with store.begin(KEY) as ingest:
                complete(store, ingest, source, Ledger())
        (path,) = (root / "models").glob("m.*")
        assert tree_of(path / "m") == {**CONTENTS, "b/s": SHARED["s"]}
        for debris in report.debris:
            freed = Claims()
            assert store.unlink(debris, freed) == 0
            assert freed.total == debris.bytes
        assert names_in(store, "incoming") == names_in(store, "doomed") == []
