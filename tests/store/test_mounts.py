"""Which filesystem a directory is on, as the kernel's table of mounts has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from weightd.store.mounts import freeing_seen_within

TABLE = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:35 / /data rw shared:9 master:2 - btrfs /dev/sdb rw,space_cache=v2
41 40 8:3 / /data/plain rw - tmpfs none rw
42 21 8:4 / /mnt/a\040disk rw - xfs /dev/sdc rw
43 21 8:5 / /twice rw - xfs /dev/sdd rw
44 43 8:6 / /twice rw - ext4 /dev/sde rw
""".lstrip()


@pytest.mark.parametrize(
    ("directory", "seconds"),
    [
        ("/", 0.0),
        ("/data", 35.0),
        ("/data/models", 35.0),
        ("/database", 0.0),
        ("/data/plain/models", 0.0),
        ("/mnt/a disk/models", 1.0),
        ("/twice/models", 0.0),
    ],
)
def test_the_innermost_and_last_mount_counts(directory: str, seconds: float) -> None:
    assert freeing_seen_within(Path(directory), TABLE) == seconds
