"""Arrivals: written, verified, claimed for, settled exactly once."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from tests.store.support import (
    OPENS,
    Bytes,
    Claims,
    TarFormat,
    Zeros,
    manifest_of,
    names_in,
    process,
    put,
    tar,
    tree_of,
    unlink_all,
)
from weightd.errors import (
    Blocked,
    DigestMismatch,
    IncompleteBody,
    InvalidRequest,
    IoError,
    Stalled,
)
from weightd.model import Key
from weightd.store import AlreadyPublished, Store
from weightd.store.ingest import ABORT_AT_ONCE_BYTES

KEY = Key.parse("org/m@r1")
CONTENT = bytes(range(256)) * 5000


@pytest.mark.parametrize("piece", [1, 4097, 1 << 20])
@pytest.mark.parametrize("declared", [True, False])
def test_a_file_arrives(store: Store, piece: int, declared: bool) -> None:
    content = CONTENT[:70_000] if piece == 1 else CONTENT
    claims = Claims()
    with store.begin(KEY) as ingest:
        entry = ingest.receive_file(
            "a/b/weights.bin",
            Bytes(content, piece),
            claim=claims,
            length=len(content) if declared else None,
            sha256=hashlib.sha256(content).hexdigest(),
        )
        manifest = manifest_of(KEY, [entry])
        path, blobs = store.publish(ingest, manifest)
    assert path == store.path_of(manifest.id)
    assert path.name == "m"
    assert path.parent.name == f"org+m@r1.{manifest.digest[:16]}"
    assert tree_of(path) == {"a/b/weights.bin": content}
    assert claims.total == store.blocks(len(content)) == blobs[0].bytes
    assert blobs[0].inode == (path / "a/b/weights.bin").stat().st_ino
    assert ingest.remains is None
    assert names_in(store, "incoming") == []


def test_what_is_published_is_read_only(root: Path) -> None:
    umask = os.umask(0o077)
    try:
        with Store.open(root, file_mode=0o440, group=os.getgid()) as store:
            path = store.path_of(put(store, "m", {"d/x": b"1", "y": b""}).id)
            modes = {p: stat.S_IMODE((path / p).stat().st_mode) for p in ("d/x", "y", "d", ".")}
            above = stat.S_IMODE(path.parent.stat().st_mode)
    finally:
        os.umask(umask)
    assert modes == {"d/x": 0o440, "y": 0o440, "d": 0o555, ".": 0o555}
    assert above == 0o755


def test_a_blob_is_claimed_before_it_grows(store: Store) -> None:
    """What a claim raises ends the ingest, and nothing beyond the claim was written."""
    granted = 2 * (512 << 10)

    def claim(count: int) -> None:
        nonlocal granted
        if count > granted:
            raise Blocked(
                reason="pins", bytes=count, free=granted, evictable=0, pinned=0, arriving=0
            )
        granted -= count

    with pytest.raises(Blocked), store.begin(KEY) as ingest:
        ingest.receive_file("w", Zeros(10 << 20), claim=claim, length=None, sha256=None)
    assert granted == 0
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


def test_a_declared_length_is_claimed_at_once(store: Store) -> None:
    claimed: list[int] = []
    with store.begin(KEY) as ingest:
        ingest.receive_file("w", Zeros(3 << 20), claim=claimed.append, length=3 << 20, sha256=None)
        ingest.receive_file("empty", Bytes(b""), claim=claimed.append, length=0, sha256=None)
    assert claimed == [3 << 20]


def test_a_shorter_body_is_incomplete(store: Store) -> None:
    with pytest.raises(IncompleteBody) as refused, store.begin(KEY) as ingest:
        ingest.receive_file("w", Bytes(b"123"), claim=Claims(), length=4, sha256=None)
    assert (refused.value.received, refused.value.declared) == (3, 4)
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


def test_a_longer_body_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="longer than the 2 declared"), store.begin(KEY) as i:
        i.receive_file("w", Bytes(b"123"), claim=Claims(), length=2, sha256=None)
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


def test_a_wrong_digest_is_refused(store: Store) -> None:
    with pytest.raises(DigestMismatch) as refused, store.begin(KEY) as ingest:
        ingest.receive_file("w", Bytes(b"123"), claim=Claims(), length=3, sha256="0" * 64)
    assert refused.value.actual == hashlib.sha256(b"123").hexdigest()
    assert names_in(store, "incoming") == []


def test_what_the_source_raises_is_not_taken_for_the_disk(store: Store) -> None:
    """`Stalled` is a TimeoutError, so an OSError; it must arrive as it is."""

    class Stalls:
        def readinto(self, buffer: memoryview) -> int:
            raise Stalled(what="The body", seconds=1)

    with pytest.raises(Stalled), store.begin(KEY) as ingest:
        ingest.receive_file("w", Stalls(), claim=Claims(), length=9, sha256=None)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "..", "a/../b", "a//b", ".", "x\n", "n" * 256])
def test_a_bad_file_name_is_refused(store: Store, path: str) -> None:
    with pytest.raises(InvalidRequest, match="file"), store.begin(KEY) as ingest:
        ingest.receive_file(path, Bytes(b""), claim=Claims(), length=0, sha256=None)


def test_a_name_is_taken_once(store: Store) -> None:
    with store.begin(KEY) as ingest:
        ingest.receive_file("a/b", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        for clash in ("a/b", "a", "a/b/c"):
            with pytest.raises(InvalidRequest):
                ingest.receive_file(clash, Bytes(b"1"), claim=Claims(), length=1, sha256=None)


def test_a_large_abort_leaves_the_unlinking_to_the_background(store: Store) -> None:
    size = ABORT_AT_ONCE_BYTES + store.block
    with store.begin(KEY) as ingest:
        ingest.receive_file("w", Zeros(size), claim=Claims(), length=size, sha256=None)
    remains = ingest.remains
    assert remains is not None
    assert remains.bytes == size
    assert names_in(store, "doomed") == [remains.id]
    freed = Claims()
    assert store.unlink(remains, freed) == 0
    assert freed.total == size
    assert ingest.abort() is remains
    assert store.unlink(remains, freed) == 0


def test_an_abort_of_what_somebody_reads_leaves_it_counted(store: Store) -> None:
    with store.begin(KEY) as ingest:
        for name in ("w", "x"):
            ingest.receive_file(name, Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        with process(OPENS, store.root / "incoming" / ingest.id / "m" / "w"):
            remains = ingest.abort()
    assert remains is not None
    assert remains.bytes == store.block
    freed = Claims()
    assert store.unlink(remains, freed) == 0
    assert freed.total == store.block


def test_an_abort_that_cannot_move_leaves_the_rest_to_unlink(store: Store) -> None:
    """A disk that fails during an abort does not hide why the ingest failed."""
    with store.begin(KEY) as ingest:
        ingest.receive_file("w", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        # Something stands where the arrival is to be moved.
        (store.root / "doomed" / ingest.id).write_text("in the way")
    assert ingest.remains is not None
    with pytest.raises(IoError):
        store.unlink(ingest.remains, Claims())
    (store.root / "doomed" / ingest.id).unlink()
    freed = Claims()
    assert store.unlink(ingest.remains, freed) == 0
    assert freed.total == store.block
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


def test_the_same_generation_is_published_once(store: Store) -> None:
    manifest = put(store, "m", {"w": b"1"})
    with store.begin(manifest.key) as ingest:
        ingest.receive_file("w", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        with pytest.raises(AlreadyPublished):
            store.publish(ingest, manifest)
    assert tree_of(store.path_of(manifest.id)) == {"w": b"1"}
    assert names_in(store, "incoming") == names_in(store, "doomed") == []


def test_a_foreign_thing_at_the_generations_name_is_left_alone(store: Store) -> None:
    manifest = put(store, "m", {"w": b"1"})
    unlink_all(store, [manifest.id])
    (store.root / "models" / f"m.{manifest.digest[:16]}").write_text("precious")
    with pytest.raises(IoError, match="move it away"):
        put(store, "m", {"w": b"1"})
    assert names_in(store, "models") == [f"m.{manifest.digest[:16]}"]


@pytest.mark.parametrize("plant", ["extra", "link", "swapped", "grown"])
def test_what_somebody_else_wrote_is_not_published(
    store: Store, tmp_path: Path, plant: str
) -> None:
    with store.begin(KEY) as ingest:
        entry = ingest.receive_file("w", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        content = store.root / "incoming" / ingest.id / "m"
        if plant == "extra":
            (content / "extra").write_text("")
        elif plant == "link":
            (content / "extra").symlink_to("/etc/passwd")
        elif plant == "swapped":
            (content / "w").unlink()
            (content / "w").write_text("2")
        else:
            with (content / "w").open("ab") as file:
                file.write(b"more")
        with pytest.raises(IoError, match="is not what was received"):
            store.publish(ingest, manifest_of(KEY, [entry]))
    assert names_in(store, "models") == []


def test_a_directory_planted_in_the_way_is_not_written_into(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with store.begin(KEY) as ingest:
        (store.root / "incoming" / ingest.id / "m" / "sub").symlink_to(elsewhere)
        with pytest.raises(IoError):
            ingest.receive_file("sub/w", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
    assert not os.listdir(elsewhere)


def test_a_manifest_must_list_what_was_received(store: Store) -> None:
    with store.begin(KEY) as ingest:
        entry = ingest.receive_file("w", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        ingest.receive_file("x", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
        with pytest.raises(ValueError, match="does not list what was received"):
            store.publish(ingest, manifest_of(KEY, [entry]))


@pytest.mark.parametrize("dialect", ["ustar", "gnu", "pax"])
def test_an_archive_is_published_as_tarfile_extracts_it(
    store: Store, tmp_path: Path, dialect: TarFormat
) -> None:
    files = {"config.json": b"{}", "a/b/w.bin": CONTENT, "empty": b""}
    files["d" * 80 + "/" + "n" * 80] = b"1"
    archive = tar(files, dialect)
    with tarfile.open(fileobj=io.BytesIO(archive)) as reference:
        # The first releases of Python 3.11 have no filters yet.
        reference.extraction_filter = getattr(tarfile, "data_filter", None)
        reference.extractall(tmp_path / "reference")
    claims = Claims()
    with store.begin(KEY) as ingest:
        entries = ingest.receive_tar(Bytes(archive, 10_000), claim=claims)
        path, blobs = store.publish(ingest, manifest_of(KEY, entries))
    assert tree_of(path) == tree_of(tmp_path / "reference") == files
    assert claims.total == sum(blob.bytes for blob in blobs)


def test_a_settled_ingest_takes_nothing(store: Store) -> None:
    ingest = store.begin(KEY)
    ingest.make()
    assert ingest.abort() is None
    with pytest.raises(RuntimeError, match="settled"):
        ingest.receive_file("w", Bytes(b"1"), claim=Claims(), length=1, sha256=None)
    with pytest.raises(RuntimeError, match="settled"):
        store.publish(ingest, manifest_of(KEY, []))


def test_a_refused_archive_leaves_nothing(store: Store) -> None:
    archive = tar({"a": b"1" * 5000, "b": b"2"})[:6000]
    with pytest.raises(ValueError, match="truncated"), store.begin(KEY) as ingest:
        ingest.receive_tar(Bytes(archive), claim=Claims())
    assert names_in(store, "incoming") == names_in(store, "doomed") == []
