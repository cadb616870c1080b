"""Taking a root: what is made, and what is refused in one clear line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.store.support import names_in, process
from weightd.errors import RootUnusable
from weightd.store import Store

OWNS = """
import sys
from pathlib import Path
from weightd.store import Store
with Store.open(Path(sys.argv[1])):
    print('ready', flush=True); sys.stdin.read()
"""


def test_a_new_root_is_made_with_its_parents(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "root"
    umask = os.umask(0o077)
    try:
        with Store.open(place) as store:
            assert store.root == place
            assert store.block >= 512
    finally:
        os.umask(umask)
    assert sorted(os.listdir(place)) == [".weightd.lock", "FORMAT", "doomed", "incoming", "models"]
    assert (place / "FORMAT").read_text() == "1\n"
    assert stat.S_IMODE((place / "models").stat().st_mode) == 0o755
    assert not os.listdir(place / "incoming")


def test_a_root_is_taken_again(root: Path) -> None:
    for _ in range(2):
        with Store.open(root) as store:
            assert names_in(store, ".") == [
                ".weightd.lock",
                "FORMAT",
                "doomed",
                "incoming",
                "models",
            ]


def test_a_second_daemon_is_told_who_the_first_is(root: Path) -> None:
    with process(OWNS, root) as first:
        with pytest.raises(RootUnusable, match=rf"pid {first.pid}\)") as refused:
            Store.open(root)
        assert "\n" not in str(refused.value)
    Store.open(root).close()


def test_a_newer_format_is_refused_and_left_alone(root: Path) -> None:
    root.mkdir()
    (root / "FORMAT").write_text("2\n")
    with pytest.raises(RootUnusable, match="has format 2, and this weightd reads up to 1"):
        Store.open(root)
    assert sorted(os.listdir(root)) == [".weightd.lock", "FORMAT"]


@pytest.mark.parametrize("text", ["", "one", "-1", "1.5", "\u0661"])
def test_a_format_that_is_no_number_is_refused(root: Path, text: str) -> None:
    root.mkdir()
    (root / "FORMAT").write_text(text)
    with pytest.raises(RootUnusable, match="not a format number"):
        Store.open(root)


def test_a_file_as_root_is_refused(root: Path) -> None:
    root.write_text("")
    with pytest.raises(RootUnusable, match="is not a directory"):
        Store.open(root)


def test_a_file_above_the_root_is_refused(root: Path) -> None:
    root.write_text("")
    with pytest.raises(RootUnusable, match="cannot be used as root: Not a directory"):
        Store.open(root / "below")


def test_a_symlink_as_root_is_refused_naming_its_target(root: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    root.symlink_to(tmp_path / "real")
    with pytest.raises(RootUnusable, match=r"set the root to .*real"):
        Store.open(root)


@pytest.mark.parametrize("name", ["models", "incoming", "doomed"])
def test_no_link_is_followed_out_of_the_root(root: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root.mkdir()
    (root / name).symlink_to(elsewhere)
    with pytest.raises(RootUnusable, match=f"{name} is not a directory"):
        Store.open(root)
    assert not os.listdir(elsewhere)


def test_a_linked_lock_is_refused(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / ".weightd.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RootUnusable, match=r"weightd\.lock"):
        Store.open(root)
    assert not (tmp_path / "precious").exists()


def test_leases_tell_use_on_this_filesystem(store: Store) -> None:
    assert store.leases_work


def test_filesystem_and_overhead(store: Store) -> None:
    seen = store.filesystem()
    answer = os.statvfs(store.root)
    assert 0 < seen.free <= seen.total
    assert seen.total <= answer.f_blocks * answer.f_frsize
    assert store.overhead() == 0
    store.state_path.write_bytes(b"x" * 5000)
    assert store.overhead() >= 5000


def test_a_root_that_is_made_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own entry, and those of what was missing above it, are flushed in their parents."""
    flushed: set[str] = set()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        flushed.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with Store.open(tmp_path / "a" / "b" / "cache"):
        assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= flushed
