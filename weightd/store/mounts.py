"""What kind of filesystem a directory is on, and what that means for its figures."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")

LATE_SECONDS: Final = {"btrfs": 1.0, "xfs": 1.0}
"""After how many seconds, at the latest, statvfs tells what was unlinked; 0 for all others."""

COMMITTED: Final = frozenset({"btrfs"})
"""Where statvfs tells of what was written or unlinked only after the next commit, by default
within 30 s.  ``syncfs`` makes one, which takes milliseconds unless much is dirty."""


def kind_of(directory: Path, mounts: str | None = None) -> str:
    """The type of filesystem that ``directory`` is on, as mount(8) calls it; "" if nobody says.

    ``mounts`` is what `_MOUNTS` says.
    """
    try:
        told = os.fsdecode(_MOUNTS.read_bytes()) if mounts is None else mounts
    except OSError:
        return ""
    path, best, kind = os.path.realpath(directory), "", ""
    # A newline is the one end of a line that the kernel escapes in a path.
    for line in filter(None, told.split("\n")):
        left, _, right = line.partition(" - ")
        point = _unescaped(left.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two at one place the later covers the other.
        if inside and len(point) >= len(best):
            best, kind = point, right.partition(" ")[0]
    return kind


def _unescaped(point: str) -> str:
    """The kernel writes blanks and backslashes of a mount point as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
