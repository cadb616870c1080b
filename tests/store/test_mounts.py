"""Which filesystem a directory is on, as the kernel's table of mounts has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from weightd.store.mounts import kind_of

TABLE = """
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:35 / /data rw shared:9 master:2 - btrfs /dev/sdb rw,space_cache=v2
41 40 8:3 / /data/plain rw - tmpfs none rw
42 21 8:4 / /mnt/a\\040disk rw - xfs /dev/sdc rw
43 21 8:5 / /twice rw - xfs /dev/sdd rw
44 43 8:6 / /twice rw - ext4 /dev/sde rw
45 21 8:7 / /odd\x0b\x85\rname rw - xfs /dev/sdf rw
""".lstrip()


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/", "ext4"),
        ("/data", "btrfs"),
        ("/data/models", "btrfs"),
        ("/database", "ext4"),
        ("/data/plain/models", "tmpfs"),
        ("/mnt/a disk/models", "xfs"),
        ("/twice/models", "ext4"),
        ("/odd\x0b\x85\rname/models", "xfs"),
    ],
)
def test_the_innermost_and_last_mount_counts(directory: str, kind: str) -> None:
    assert kind_of(Path(directory), TABLE) == kind
