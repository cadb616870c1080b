"""Where things are when nobody says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from weightd.settings.places import (
    default_root,
    default_socket,
    filesystem_total,
    nearest_existing,
    on_system_disk,
)

USER = {"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1000"}


@pytest.mark.parametrize(
    ("environ", "uid", "root"),
    [
        ({}, 0, "/var/cache/weightd"),
        ({"CACHE_DIRECTORY": "/var/cache/w"}, 0, "/var/cache/w"),
        ({"CACHE_DIRECTORY": "/var/cache/a:/var/cache/b"}, 1000, "/var/cache/a"),
        (USER, 1000, "/home/u/.cache/weightd"),
        ({**USER, "XDG_CACHE_HOME": "/mnt/c"}, 1000, "/mnt/c/weightd"),
        ({**USER, "XDG_CACHE_HOME": "relative"}, 1000, "/home/u/.cache/weightd"),
    ],
)
def test_root(environ: dict[str, str], uid: int, root: str) -> None:
    assert default_root(environ, uid) == Path(root)


@pytest.mark.parametrize(
    ("environ", "uid", "path"),
    [
        ({}, 0, "/run/weightd/weightd.sock"),
        ({"RUNTIME_DIRECTORY": "/run/w"}, 1000, "/run/w/weightd.sock"),
        (USER, 1000, "/run/user/1000/weightd/weightd.sock"),
    ],
)
def test_socket(environ: dict[str, str], uid: int, path: str) -> None:
    assert default_socket(environ, uid) == Path(path)


def test_socket_without_a_login_manager_is_named_for_the_user() -> None:
    assert default_socket({"HOME": "/home/u"}, 1000).parts[-2:] == ("weightd-1000", "weightd.sock")


def test_filesystem_is_measured_as_df_does(tmp_path: Path) -> None:
    listing = subprocess.run(
        ["df", "--output=used,avail", "--block-size=1", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    by_df = sum(int(figure) for figure in listing.stdout.split()[-2:])
    # Others write while this looks, which moves used and avail alike.
    assert filesystem_total(tmp_path) == pytest.approx(by_df, rel=1e-3)


def test_root_that_does_not_exist_yet_is_measured_by_its_parent(tmp_path: Path) -> None:
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path
    assert filesystem_total(tmp_path / "a" / "b") > 0


def test_system_disk_is_told_by_the_device() -> None:
    assert on_system_disk(Path("/no-such-directory/cache"))
    shm = Path("/dev/shm")
    if not shm.is_dir() or os.stat(shm).st_dev == os.stat("/").st_dev:
        pytest.skip("cannot be had: a second filesystem that everybody may use")
    assert not on_system_disk(shm / "cache")
