"""Freeing: in slices, resumable, and never under a reader."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.store.support import MAPS, OPENS, Claims, Zeros, names_in, process, put
from weightd.store import Doomed, Store
from weightd.store.unlink import SLICE


class Interrupted(Exception):
    """What a caller that is shutting down raises from ``freed``."""


def doomed_model(store: Store, size: int) -> Doomed:
    return store.doom([put(store, "m", {"w": Zeros(size), "d/small": b"1"}).id])[0]


def test_a_large_file_goes_in_slices(store: Store) -> None:
    doomed = doomed_model(store, 3 * SLICE + 5)
    pieces: list[int] = []
    assert store.unlink(doomed, pieces.append) == 0
    assert sorted(pieces) == sorted([store.block, store.block, SLICE, SLICE, SLICE])
    assert names_in(store, "doomed") == []


def test_an_interrupted_unlink_is_resumed_by_the_next_start(root: Path) -> None:
    pieces: list[int] = []

    def interrupt(count: int) -> None:
        pieces.append(count)
        if count == SLICE:
            raise Interrupted

    with Store.open(root) as store:
        doomed = doomed_model(store, 4 * SLICE)
        with pytest.raises(Interrupted):
            store.unlink(doomed, interrupt)
    with Store.open(root) as store:
        (debris,) = store.scan().debris
        assert debris.id == doomed.id
        assert debris.bytes == doomed.bytes - sum(pieces)
        freed = Claims()
        assert store.unlink(debris, freed) == 0
        assert freed.total == debris.bytes


def test_a_large_file_with_another_name_is_not_truncated(store: Store, tmp_path: Path) -> None:
    model = put(store, "m", {"w": Zeros(SLICE * 2)})
    other = store.root / "kept"
    os.link(store.path_of(model.id) / "w", other)
    freed = Claims()
    for doomed in store.doom([model.id]):
        assert store.unlink(doomed, freed) == 0
    assert freed.total == 0
    assert other.stat().st_size == 2 * SLICE


@pytest.mark.parametrize("code", [OPENS, MAPS], ids=["open", "mapped"])
@pytest.mark.parametrize("size", [100, SLICE + 1], ids=["small", "large"])
def test_a_file_somebody_came_to_use_stays_until_it_is_let_go(
    store: Store, code: str, size: int
) -> None:
    doomed = doomed_model(store, size)
    path = store.root / "doomed" / doomed.id / "m" / "w"
    freed = Claims()
    with process(code, path):
        assert store.unlink(doomed, freed) == store.blocks(size)
        assert freed.total == store.block
        assert path.stat().st_size == size
    assert store.unlink(doomed, freed) == 0
    assert freed.total == doomed.bytes


def test_without_leases_a_file_goes_in_one_piece(store: Store) -> None:
    """Where the kernel does not tell use, nothing is ever truncated."""
    object.__setattr__(store._root, "leases_work", False)
    doomed = doomed_model(store, 2 * SLICE)
    path = store.root / "doomed" / doomed.id / "m" / "w"
    pieces: list[int] = []
    with path.open("rb") as reader:
        assert store.unlink(doomed, pieces.append) == 0
        assert os.fstat(reader.fileno()).st_size == 2 * SLICE
    assert sorted(pieces) == [store.block, 2 * SLICE]


def test_unlinking_again_is_no_error(store: Store) -> None:
    doomed = doomed_model(store, 10)
    freed = Claims()
    assert [store.unlink(doomed, freed) for _ in range(2)] == [0, 0]
    assert freed.total == doomed.bytes


def test_names_that_change_meanwhile_are_no_error(store: Store) -> None:
    """Somebody removes one file and renames another while the unlink runs."""
    model = put(store, "m", {"a/1": b"1", "b/2": b"2", "c/3": b"3"})
    (doomed,) = store.doom([model.id])
    place = store.root / "doomed" / doomed.id / "m"

    def meddle(count: int) -> None:
        for name in ("a", "b", "c"):
            if (place / name).exists():
                shutil.move(place / name, store.root / "doomed" / f"{name}{count}")
                return

    assert store.unlink(doomed, meddle) == 0
    assert doomed.id not in names_in(store, "doomed")


def test_directories_go_however_deep_they_are(store: Store) -> None:
    """Deeper than one may have descriptors open, or call oneself; with a file at every level."""
    doomed = doomed_model(store, 10)
    top = store.root / "doomed" / doomed.id / "m"
    os.chmod(top, 0o755)
    directory = os.open(top, os.O_RDONLY)
    for _ in range(1200):
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=directory))
        os.mkdir("deep", dir_fd=directory)
        below = os.open("deep", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    freed = Claims()
    assert store.unlink(doomed, freed) == 0
    assert freed.total == doomed.bytes
    assert doomed.id not in names_in(store, "doomed")


def test_what_somebody_has_open_far_below_stays_counted(store: Store) -> None:
    doomed = doomed_model(store, 10)
    deep = (store.root / "doomed" / doomed.id / "m").joinpath(*100 * "d")
    os.chmod(store.root / "doomed" / doomed.id / "m", 0o755)
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(b"1")
    block = store.blocks(1)
    with (deep / "f").open("rb"):
        assert store.unlink(doomed, Claims()) == block
    freed = Claims()
    assert store.unlink(doomed, freed) == 0
    assert freed.total == block
