"""Files that arrive in pieces: written anywhere, verified in order, left and gone on with."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.support import Claims, Ledger, du, manifest_of, names_in, tree_of
from weightd.errors import DigestMismatch
from weightd.model import FileEntry, Key
from weightd.store import Ingest, Part, Store
from weightd.store.progress import Progress
from weightd.store.spans import Spans

KEY = Key.parse("org/m@r1")
CONTENT = os.urandom(3 << 20) + b"tail"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def part_of(ingest: Ingest, ledger: Ledger, path: str = "a/w", content: bytes = CONTENT) -> Part:
    return ingest.part(path, len(content), claim=ledger.claim, wrote=ledger.wrote)


def write(part: Part, start: int, stop: int, content: bytes = CONTENT) -> None:
    part.write(start, memoryview(content)[start:stop])


def complete(part: Part, content: bytes = CONTENT) -> FileEntry:
    for start, stop in part.missing():
        write(part, start, stop, content)
    return part.seal(hashlib.sha256(content).hexdigest())


def publish(store: Store, ingest: Ingest, entries: list[FileEntry]) -> Path:
    return store.publish(ingest, manifest_of(ingest.key, entries))[0]


def test_a_file_arrives_in_pieces(store: Store) -> None:
    ledger = Ledger()
    with store.begin(KEY) as ingest:
        ingest.note(b"{}")
        part = part_of(ingest, ledger)
        write(part, 2 << 20, len(CONTENT))
        write(part, 100, 1000)
        assert part.missing() == [(0, 100), (1000, 2 << 20)]
        write(part, 0, 2 << 20)
        entry = part.seal(SHA256)
        assert entry == FileEntry("a/w", len(CONTENT), SHA256)
        empty = part_of(ingest, ledger, "empty", b"")
        assert empty.missing() == []
        path = publish(store, ingest, [entry, empty.seal(None)])
    assert tree_of(path) == {"a/w": CONTENT, "empty": b""}
    assert (path / "a/w").stat().st_mode & 0o777 == 0o444
    assert ledger.claimed == ledger.written == store.blocks(len(CONTENT))
    assert sorted(os.listdir(path.parent)) == ["m", "manifest.json"]
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


def test_what_is_parked_is_gone_on_with(root: Path) -> None:
    ledger = Ledger()
    with Store.open(root) as store:
        ingest = store.begin(KEY)
        ingest.note(b'{"one": 1}')
        ingest.note(b'{"two": 2}')
        whole = complete(part_of(ingest, ledger, "whole", b"123"), b"123")
        part = part_of(ingest, ledger)
        write(part, 0, 5000)
        write(part, 1 << 20, 2 << 20)
        parked = ingest.park()
        assert ingest.settled
        assert ingest.abort() is None
    assert (parked.key, parked.note, parked.paths) == (
        KEY,
        b'{"two": 2}',
        frozenset({"a/w", "whole"}),
    )
    assert parked.bytes == ledger.written == du(root / "incoming" / parked.id / "m")
    with Store.open(root, boot="another") as store:
        report = store.scan()
        assert report.parked == [parked]
        assert not any((report.debris, report.models))
        with store.begin(KEY, resume=parked) as ingest:
            again = part_of(ingest, ledger, "whole", b"123")
            assert again.missing() == []
            part = part_of(ingest, ledger)
            assert part.missing() == [(5000, 1 << 20), (2 << 20, len(CONTENT))]
            entries = [again.seal(None), complete(part)]
            assert entries[0] == whole
            path = publish(store, ingest, entries)
        assert tree_of(path) == {"a/w": CONTENT, "whole": b"123"}
    assert ledger.claimed == ledger.written == store.blocks(len(CONTENT)) + store.block


def killed(ingest: Ingest) -> None:
    """Leave it as a killed process does."""
    ingest.settle()


def test_a_kill_loses_nothing_that_was_written_and_a_power_loss_what_was_not_flushed(
    root: Path,
) -> None:
    ledger = Ledger()
    with Store.open(root, boot="first") as store:
        ingest = store.begin(KEY)
        ingest.note(b"{}")
        part = part_of(ingest, ledger)
        write(part, 0, 10_000)
        part.flush()
        write(part, 10_000, 20_000)
        killed(ingest)
    for boot, here in (("first", 20_000), ("second", 10_000)):
        with Store.open(root, boot=boot) as store:
            (parked,) = store.scan().parked
            ingest = store.begin(KEY, resume=parked)
            part = part_of(ingest, ledger)
            assert part.missing() == [(here, len(CONTENT))]
            killed(ingest)
    with Store.open(root, boot="second") as store:
        (parked,) = store.scan().parked
        freed = Claims()
        assert store.unlink(store.drop(parked), freed) == 0
        assert freed.total == parked.bytes == ledger.written
        assert store.scan().parked == []


def test_wrong_content_is_given_up_and_can_come_again(store: Store) -> None:
    ledger = Ledger()
    with store.begin(KEY) as ingest:
        part = part_of(ingest, ledger)
        wrong = b"x" + CONTENT[1:]
        write(part, 0, len(CONTENT), wrong)
        with pytest.raises(DigestMismatch) as refused:
            part.seal(SHA256)
        assert refused.value.actual == hashlib.sha256(wrong).hexdigest()
        assert refused.value.file == "a/w"
        assert part.missing() == [(0, len(CONTENT))]
        assert ledger.written == 0
        assert complete(part).sha256 == SHA256
    assert ledger.written == store.blocks(len(CONTENT))


@given(st.data())
def test_progress_that_was_tampered_with_claims_no_more(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place, opened(Path(place)) as directory:
        progress = Progress(directory, "boot")
        truth = Spans()
        for start in range(0, 4000, 400):
            truth.add(start, start + 300)
            progress.here("x", start, start + 300)
        progress.close()
        file = Path(place) / ".progress"
        content = bytearray(file.read_bytes())
        del content[data.draw(st.integers(0, len(content))) :]
        for index in data.draw(st.lists(st.integers(0, max(0, len(content) - 1)), max_size=5)):
            content[index : index + 1] = data.draw(st.binary(min_size=1, max_size=1))
        file.write_bytes(content)
        progress = Progress(directory, "boot")
        assert all(truth.within(*span) == [span] for span in progress.of("x"))
        progress.close()


@contextmanager
def opened(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
