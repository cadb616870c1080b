"""Generations that share files: linked, told apart, freed with the last name."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.store.support import (
    HOLDS,
    OPENS,
    Claims,
    Ledger,
    du,
    manifest_of,
    process,
    put,
    tree_of,
    unlink_all,
)
from weightd.model import Blob, FileEntry, Key, Manifest
from weightd.store import SeizeRefused, Store
from weightd.store.unlink import SLICE

FILES = {"w": os.urandom(20_000), "d/v": b"v" * 5000}


def entry(path: str, content: bytes) -> FileEntry:
    return FileEntry(path, len(content), hashlib.sha256(content).hexdigest())


def second(store: Store, first: Manifest, new: bytes = b"changed") -> Manifest:
    """Publish a revision that shares all files of the first, and has one of its own."""
    ledger = Ledger()
    with store.begin(Key.parse(f"{first.key}@2")) as ingest:
        entries = [
            ingest.link(FileEntry(f"at/{one.path}", one.bytes, one.sha256), first.id, one.path)
            for one in first.files
        ]
        part = ingest.part("config", len(new), claim=ledger.claim, wrote=ledger.wrote)
        part.write(0, memoryview(new))
        entries.append(part.seal(None))
        manifest = manifest_of(ingest.key, entries, 2)
        _, blobs = store.publish(ingest, manifest)
    assert ledger.written == store.blocks(len(new))
    shared = {blob.inode for blob in blobs}
    assert shared >= {blob.inode for blob in checked(store, first)}
    return manifest


def checked(store: Store, manifest: Manifest) -> tuple[Blob, ...]:
    blobs = store.check(manifest)
    assert isinstance(blobs, tuple)
    return blobs


def test_a_revision_costs_what_it_changed(root: Path) -> None:
    with Store.open(root) as store:
        first = put(store, "m", FILES)
        before = du(root / "models")
        later = second(store, first)
        # Its own file and its manifest.
        assert du(root / "models") - before == 2 * store.block
        assert tree_of(store.path_of(later.id)) == {
            "config": b"changed",
            **{f"at/{path}": content for path, content in FILES.items()},
        }
    with Store.open(root) as store:
        found = {one.manifest: one.blobs for one in store.scan().models}
        assert found[first] == checked(store, first)
        assert found[later] == checked(store, later)
        shared = {blob.inode for blob in found[first]} & {blob.inode for blob in found[later]}
        assert len(shared) == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_shared_bytes_are_freed_with_the_last_name(store: Store, order: tuple[int, int]) -> None:
    models = [put(store, "m", FILES)]
    models.append(second(store, models[0]))
    sizes = sum(store.blocks(len(content)) for content in FILES.values())
    gone, kept = (models[index] for index in order)
    own = 0 if gone is models[0] else store.block
    assert unlink_all(store, [gone.id]) == own
    checked(store, kept)
    rest = sizes + (store.block if kept is models[1] else 0)
    assert unlink_all(store, [kept.id]) == rest


def test_both_go_at_once(store: Store) -> None:
    first = put(store, "m", FILES)
    later = second(store, first)
    doomed = store.doom([first.id, later.id])
    freed = Claims()
    for one in doomed:
        assert store.unlink(one, freed) == 0
    assert freed.total == sum(one.bytes for one in doomed)
    assert freed.total == sum(store.blocks(len(c)) for c in FILES.values()) + store.block


def test_a_reader_of_one_name_keeps_only_what_is_its_own(store: Store) -> None:
    """The other generation goes under it, and the bytes stay; the last one is refused."""
    first = put(store, "m", FILES)
    later = second(store, first)
    with process(OPENS, store.path_of(first.id) / "w"):
        assert unlink_all(store, [later.id]) == store.block
        with pytest.raises(SeizeRefused):
            store.doom([first.id])
    again = second(store, first)
    with process(HOLDS, store.path_of(first.id)):
        with pytest.raises(SeizeRefused):
            store.doom([first.id])
        assert unlink_all(store, [again.id]) == store.block


def test_a_large_shared_file_is_not_truncated(store: Store) -> None:
    content = bytes(SLICE + 5)
    first = put(store, "m", {"w": content})
    later = second(store, first)
    assert unlink_all(store, [first.id]) == 0
    assert (store.path_of(later.id) / "at/w").stat().st_size == len(content)
    assert unlink_all(store, [later.id]) == store.blocks(len(content)) + store.block


def test_a_link_is_refused_and_the_file_may_arrive(store: Store, tmp_path: Path) -> None:
    """What is not there as it was published, through whatever stands in its place."""
    first = put(store, "m", FILES)
    place = store.path_of(first.id)
    secret = tmp_path / "secret"
    secret.write_bytes(FILES["w"])
    ledger = Ledger()

    def refused(wanted: FileEntry, path: str) -> None:
        with store.begin(Key("n")) as ingest:
            with pytest.raises(FileNotFoundError):
                ingest.link(wanted, first.id, path)
            part = ingest.part(wanted.path, 1, claim=ledger.claim, wrote=ledger.wrote)
            part.write(0, memoryview(b"1"))
            store.publish(ingest, manifest_of(ingest.key, [part.seal(None)]))
        unlink_all(store, [store.scan().models[0].manifest.id])
        assert secret.stat().st_nlink == 1

    good = entry("w", FILES["w"])
    refused(good, "other")
    refused(entry("w", b"other content"), "w")
    os.chmod(place, 0o755)
    (place / "w").rename(tmp_path / "w")
    refused(good, "w")
    (place / "w").symlink_to(secret)
    refused(good, "w")
    (place / "w").unlink()
    (place / "w").write_bytes(FILES["w"][:-1])
    refused(good, "w")
    (place / "d").rename(tmp_path / "d")
    (place / "d").symlink_to(tmp_path / "d")
    refused(entry("v", FILES["d/v"]), "d/v")
