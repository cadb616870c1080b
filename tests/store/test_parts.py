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

from tests.store.support import Claims, Ledger, begun, du, manifest_of, names_in, tree_of
from weightd.errors import Blocked, DigestMismatch, InvalidRequest, IoError
from weightd.model import FileEntry, Key
from weightd.store import Ingest, NotCopied, Parked, Part, Store
from weightd.store.progress import Progress
from weightd.store.spans import Spans
from weightd.store.unlink import SLICE

KEY = Key.parse("org/m@r1")
CONTENT = os.urandom(3 << 20) + b"tail"
TWO = b'{"two":\n"\xc3\xa9"}\xff\n'
"""A note; it means nothing to the store."""
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


def test_a_file_of_this_filesystem_is_copied_by_the_kernel(store: Store, root: Path) -> None:
    source = root.parent / "source"
    source.write_bytes(b"before" + CONTENT)
    ledger = Ledger()
    with store.begin(KEY) as ingest, source.open("rb") as file:
        ingest.note(b"{}")
        part = part_of(ingest, ledger)
        write(part, 100, 1000)
        part.copy(0, file.fileno(), 6, 2 << 20)
        part.copy(2 << 20, file.fileno(), 6 + (2 << 20), len(CONTENT) - (2 << 20))
        path = publish(store, ingest, [part.seal(SHA256)])
    assert tree_of(path) == {"a/w": CONTENT}
    assert ledger.claimed == ledger.written == store.blocks(len(CONTENT))


def test_what_cannot_be_copied_is_still_missing(store: Store) -> None:
    ledger = Ledger()
    reading, writing = os.pipe()
    try:
        with store.begin(KEY) as ingest:
            ingest.note(b"{}")
            part = part_of(ingest, ledger)
            with pytest.raises(NotCopied):
                part.copy(0, reading, 0, len(CONTENT))
            assert part.missing() == [(0, len(CONTENT))]
            complete(part)
    finally:
        os.close(reading)
        os.close(writing)
    assert ledger.claimed == ledger.written == store.blocks(len(CONTENT))


def test_what_is_parked_is_gone_on_with(root: Path) -> None:
    ledger = Ledger()
    with Store.open(root) as store:
        ingest = begun(store, KEY)
        ingest.note(b'{"one": 1}')
        ingest.note(TWO)
        whole = complete(part_of(ingest, ledger, "whole", b"123"), b"123")
        part = part_of(ingest, ledger)
        write(part, 0, 5000)
        write(part, 1 << 20, 2 << 20)
        parked = ingest.park()
        assert ingest.settled
        assert ingest.abort() is None
    assert (parked.key, parked.note, parked.paths) == (
        KEY,
        TWO,
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
        ingest = begun(store, KEY)
        ingest.note(b"{}")
        part = part_of(ingest, ledger)
        write(part, 0, 10_000)
        part.flush()
        write(part, 10_000, 20_000)
        killed(ingest)
    for boot, here in (("first", 20_000), ("second", 10_000)):
        with Store.open(root, boot=boot) as store:
            (parked,) = store.scan().parked
            ingest = begun(store, KEY, resume=parked)
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


def test_a_part_takes_what_fits_and_is_whole(store: Store) -> None:
    ledger = Ledger()
    with store.begin(KEY) as ingest:
        part = part_of(ingest, ledger)
        for start in (-1, len(CONTENT), len(CONTENT) + 5):
            with pytest.raises(ValueError, match="has no byte"):
                part.write(start, memoryview(b"12"))
        write(part, 0, 10)
        part.write(0, memoryview(b"what is here stays"[:10]))
        with pytest.raises(ValueError, match=r"bytes of a/w are missing"):
            part.seal(None)
        with pytest.raises(InvalidRequest, match="stands twice"):
            part_of(ingest, ledger)
        with pytest.raises(RuntimeError, match="no note"):
            ingest.park()
        complete(part)
        with pytest.raises(RuntimeError, match="closed"):
            part.discard()
    with pytest.raises(RuntimeError, match="closed"):
        part.seal(None)
    with pytest.raises(RuntimeError, match="settled"):
        part_of(ingest, ledger, "b")


def test_what_a_claim_raises_leaves_the_bytes_missing(store: Store) -> None:
    blocked = Blocked(reason="pins", bytes=1, free=0, evictable=0, pinned=0, arriving=0)
    ledger = Ledger()

    def claim(count: int) -> None:
        if ledger.claimed:
            raise blocked
        ledger.claim(count)

    with store.begin(KEY) as ingest:
        part = ingest.part("w", len(CONTENT), claim=claim, wrote=ledger.wrote)
        write(part, 0, 5)
        # No new block is asked for.
        write(part, 5, store.block)
        with pytest.raises(Blocked):
            write(part, store.block - 5, store.block + 5)
        assert part.missing() == [(store.block, len(CONTENT))]
        assert ledger.claimed == ledger.written == store.block


def test_a_parked_file_of_another_size_begins_again(store: Store) -> None:
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    write(part_of(ingest, ledger), 0, 50_000)
    with store.begin(KEY, resume=ingest.park()) as ingest:
        part = part_of(ingest, ledger, content=CONTENT[:40_000])
        assert part.missing() == [(0, 40_000)]
        assert ledger.written == 0
        complete(part, CONTENT[:40_000])
        assert ledger.written == store.blocks(40_000)


@pytest.mark.parametrize("planted", ["gone", "short", "grown", "link", "other name", "directory"])
def test_a_parked_file_that_is_not_what_was_left_begins_again(
    store: Store, tmp_path: Path, planted: str
) -> None:
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    write(part_of(ingest, ledger, "w"), 0, 50_000)
    parked = ingest.park()
    place = store.root / "incoming" / parked.id / "m" / "w"
    if planted == "grown":
        with place.open("ab") as file:
            file.write(b"1")
    elif planted == "short":
        os.truncate(place, 50_000)
    elif planted == "other name":
        os.link(place, tmp_path / "other")
    else:
        place.unlink()
    if planted == "link":
        place.symlink_to("/etc/passwd")
    elif planted == "directory":
        place.mkdir()
    with store.begin(KEY, resume=parked) as ingest:
        if planted == "directory":
            with pytest.raises(IoError):
                part_of(ingest, ledger, "w")
            return
        part = part_of(ingest, ledger, "w")
        assert part.missing() == [(0, len(CONTENT))]
        entry = complete(part)
        assert tree_of(publish(store, ingest, [entry])) == {"w": CONTENT}


def test_what_is_left_of_a_file_can_be_given_up(store: Store) -> None:
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    write(part_of(ingest, ledger), 0, 50_000)
    with store.begin(KEY, resume=ingest.park()) as ingest:
        ingest.remove("a/w", wrote=ledger.wrote)
        ingest.remove("a/w", wrote=ledger.wrote)
        ingest.remove("b/never", wrote=ledger.wrote)
        assert ledger.written == 0
        part = part_of(ingest, ledger)
        assert part.missing() == [(0, len(CONTENT))]
        complete(part)
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    ledger = Ledger()
    write(part_of(ingest, ledger), 0, 50_000)
    with store.begin(KEY, resume=ingest.park()) as ingest:
        part = part_of(ingest, ledger)
        part.discard()
        assert ledger.written == 0
        complete(part)
    assert ledger.written == store.blocks(len(CONTENT))


def test_a_large_part_with_holes_goes_in_slices(store: Store) -> None:
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    size = 3 * SLICE
    part = ingest.part("w", size, claim=ledger.claim, wrote=ledger.wrote)
    for start in (100, SLICE + 5000, size - 10):
        part.write(start, memoryview(b"0123456789"))
    parked = ingest.park()
    assert parked.bytes == 3 * store.block == du(store.root / "incoming" / parked.id / "m")
    freed: list[int] = []
    assert store.unlink(store.drop(parked), freed.append) == 0
    assert freed == [store.block] * 3
    assert store.drop(parked).vanished
    assert store.unlink(store.drop(parked), freed.append) == 0


def test_an_abort_frees_what_was_written(store: Store) -> None:
    ledger = Ledger()
    with store.begin(KEY) as ingest:
        part = ingest.part("w", 100 << 20, claim=ledger.claim, wrote=ledger.wrote)
        for start in range(0, 70 << 20, 1 << 20):
            part.write(start, memoryview(CONTENT)[: 1 << 20])
        part.write((100 << 20) - 1, memoryview(b"1"))
    remains = ingest.remains
    assert remains is not None
    assert remains.bytes == ledger.written == (70 << 20) + store.block
    freed = Claims()
    assert store.unlink(remains, freed) == 0
    # Beside it what the filesystem may take for itself, to know where a file with holes is.
    assert remains.bytes <= freed.total <= remains.bytes + store.block


def test_one_arrival_is_kept_for_a_key_and_the_last_one(root: Path) -> None:
    parked: list[Parked] = []
    with Store.open(root) as store:
        for at, key in ((2, "m"), (1, "m"), (3, "other")):
            ledger = Ledger()
            ingest = begun(store, Key(key))
            ingest.note(str(at).encode())
            write(part_of(ingest, ledger, "w"), 0, 5000)
            one = ingest.park()
            parked.append(one)
            for place in (root / "incoming" / one.id).rglob("*"):
                os.utime(place, (at, at))
            os.utime(root / "incoming" / one.id, (at, at))
    with Store.open(root) as store:
        report = store.scan()
        assert [one.note for one in sorted(report.parked, key=lambda one: one.at)] == [b"2", b"3"]
        (debris,) = report.debris
        assert (debris.id, debris.bytes) == (parked[1].id, parked[1].bytes)
        assert store.unlink(debris, Claims()) == 0


@pytest.mark.parametrize(
    "note", ["", "[]\n", "{}\n", '{"key": 1}\n', '{"key": "../x"}\n', '{"key": "org/m@r1"}', "[\n"]
)
def test_an_arrival_whose_note_says_nothing_is_debris(store: Store, note: str) -> None:
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    write(part_of(ingest, ledger), 0, 5000)
    parked = ingest.park()
    place = store.root / "incoming" / parked.id / ".arrival.json"
    place.write_text(note)
    report = store.scan()
    assert report.parked == []
    assert [(one.id, one.bytes) for one in report.debris] == [(parked.id, parked.bytes)]
    freed = Claims()
    assert store.unlink(report.debris[0], freed) == 0
    assert freed.total == parked.bytes


def test_an_arrival_of_which_nothing_is_here_is_debris(store: Store) -> None:
    """Names and a note alone would be kept by nobody's account."""
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    empty = part_of(ingest, ledger, "empty", b"").seal(None)
    assert empty.bytes == 0
    part = part_of(ingest, ledger)
    noted = [ingest.noted]
    write(part, 0, 5000)
    noted.append(ingest.noted)
    part.discard()
    noted.append(ingest.noted)
    assert noted == [False, True, False]
    ingest.settle()
    report = store.scan()
    assert report.parked == []
    assert [(one.id, one.bytes) for one in report.debris] == [(ingest.id, 0)]


def test_a_note_that_was_planted_is_not_read(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "note"
    elsewhere.write_text('{"key": "m"}\n')
    for plant in ("link", "fifo"):
        ingest = begun(store, KEY)
        ingest.settle()
        place = store.root / "incoming" / ingest.id / ".arrival.json"
        if plant == "link":
            place.symlink_to(elsewhere)
        else:
            os.mkfifo(place)
    report = store.scan()
    assert report.parked == []
    assert len(report.debris) == 2
    for debris in report.debris:
        assert store.unlink(debris, Claims()) == 0
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


@pytest.mark.parametrize("name", ["manifest.json", "superseded", "arrival.json", "progress"])
def test_a_model_may_be_called_as_our_files_are(store: Store, name: str) -> None:
    ledger = Ledger()
    ingest = begun(store, Key(name))
    ingest.note(b"{}")
    write(part_of(ingest, ledger), 0, 5000)
    with store.begin(Key(name), resume=ingest.park()) as ingest:
        path = publish(store, ingest, [complete(part_of(ingest, ledger))])
    assert tree_of(path) == {"a/w": CONTENT}


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
