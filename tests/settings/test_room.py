"""What is said of a budget that the filesystem has no room for."""

from __future__ import annotations

import os
from pathlib import Path

from weightd.settings.room import shortage, shortage_at

GB = 10**9


def test_nothing_is_said_of_a_budget_that_has_room() -> None:
    assert shortage(70 * GB, 20 * GB, 100 * GB, 10 * GB) is None


def test_what_others_keep_and_what_stays_free_is_said() -> None:
    assert shortage(80 * GB, 20 * GB, 100 * GB, 10 * GB) == (
        "70 GB of the budget can be used now: others occupy 10 GB and 20 GB must stay free"
    )


def test_a_filesystem_that_is_too_full_has_no_room_at_all() -> None:
    said = shortage(80 * GB, 20 * GB, 100 * GB, 95 * GB)
    assert said is not None
    assert said.startswith("0 B of the budget")


def test_what_is_below_the_root_is_not_others(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    figures = os.statvfs(tmp_path)
    total = figures.f_blocks * figures.f_frsize
    assert shortage_at(root, total, 0) is not None
    assert shortage_at(root, 1, 0) is None
    root.mkdir()
    (root / "weights").write_bytes(b"w" * 100_000)
    os.link(root / "weights", root / "again")
    assert shortage_at(root, total, 0) is not None
