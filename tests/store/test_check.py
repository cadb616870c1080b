"""Whether a published model is still what was published, and reading its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.support import put
from weightd.model import Manifest
from weightd.store import Damage, Store

CONTENT = b"0123456789"


@pytest.fixture
def model(store: Store) -> Manifest:
    return put(store, "org/m", {"w": CONTENT, "d/e/v": b"v"})


def test_an_untouched_model_is_sound(store: Store, model: Manifest) -> None:
    blobs = store.check(model)
    assert isinstance(blobs, tuple)
    assert [(blob.sha256, blob.bytes) for blob in blobs] == [
        (entry.sha256, store.block) for entry in model.files
    ]


def remove(path: Path) -> None:
    (path / "d/e/v").unlink()


def remove_directory(path: Path) -> None:
    shutil.rmtree(path / "d")


def remove_all(path: Path) -> None:
    shutil.rmtree(path)


def remove_generation(path: Path) -> None:
    shutil.rmtree(path.parent)


def remove_manifest(path: Path) -> None:
    (path.parent / "manifest.json").unlink()


def garble_manifest(path: Path) -> None:
    (path.parent / "manifest.json").write_text("{}")


def truncate(path: Path) -> None:
    os.truncate(path / "w", 3)


def append(path: Path) -> None:
    with (path / "w").open("ab") as file:
        file.write(b"x")


def write_in_place(path: Path) -> None:
    status = (path / "w").stat()
    with (path / "w").open("r+b") as file:
        file.write(b"9")
    os.utime(path / "w", ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def swap_for_a_link(path: Path) -> None:
    (path / "w").rename(path.parent / "w")
    (path / "w").symlink_to(path.parent / "w")


def swap_for_a_fifo(path: Path) -> None:
    (path / "w").unlink()
    os.mkfifo(path / "w")


def swap_a_directory_for_a_link(path: Path) -> None:
    (path / "d").rename(path.parent / "d")
    (path / "d").symlink_to(path.parent / "d")


def swap_the_model_for_a_link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def add_a_file(path: Path) -> None:
    (path / os.fsdecode(b"\xff")).write_text("")


def test_a_file_of_somebody_else_is_no_damage(store: Store, model: Manifest) -> None:
    add_a_file(store.path_of(model.id))
    assert not isinstance(store.check(model), Damage)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remove, "d/e/v is missing"),
        (remove_directory, "d/e/v is missing"),
        (remove_all, "its directory is missing"),
        (remove_generation, "its directory is missing"),
        (remove_manifest, "manifest.json is missing"),
        (garble_manifest, "not a manifest"),
        (truncate, "w has 3 bytes instead of 10"),
        (append, "w has 11 bytes instead of 10"),
        (write_in_place, "w was written to"),
        (swap_for_a_link, "w is a symbolic link now"),
        (swap_for_a_fifo, "w is no longer a regular file"),
        (swap_a_directory_for_a_link, "d/e/v is missing"),
        (swap_the_model_for_a_link, "no longer a directory"),
    ],
)
def test_damage_is_noticed(
    store: Store, model: Manifest, change: Callable[[Path], None], reason: str
) -> None:
    change(store.path_of(model.id))
    found = store.check(model)
    assert isinstance(found, Damage)
    assert reason in found.reason


def test_a_file_is_read_by_its_path(store: Store, model: Manifest) -> None:
    descriptor = store.open_file(model.id, "d/e/v")
    try:
        assert os.read(descriptor, 10) == b"v"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(descriptor, b"x")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "path", ["missing", "d", "d/e", "w/x", "", "..", "../manifest.json", "/etc/passwd", "a\0b"]
)
def test_what_is_no_file_of_the_model_is_not_found(
    store: Store, model: Manifest, path: str
) -> None:
    with pytest.raises(FileNotFoundError):
        store.open_file(model.id, path)


@pytest.mark.parametrize(
    "change", [swap_for_a_link, swap_for_a_fifo, swap_the_model_for_a_link, remove_generation]
)
def test_no_descriptor_leads_out_of_a_damaged_model(
    store: Store, model: Manifest, change: Callable[[Path], None]
) -> None:
    change(store.path_of(model.id))
    with pytest.raises(FileNotFoundError):
        store.open_file(model.id, "w")
