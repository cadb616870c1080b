"""What kind of filesystem a directory is on, and what that means for its figures."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")

_LATE: Final = {"btrfs": 35.0, "xfs": 1.0}
"""Seconds; btrfs commits every 30 by default, and tells what was freed only then."""


def freeing_seen_within(directory: Path, mounts: str | None = None) -> float:
    """After how many seconds, at the latest, statvfs tells what was unlinked below ``directory``.

    ``mounts`` is what `_MOUNTS` says; where it says nothing the figures are taken for exact.
    """
    try:
        lines = (_MOUNTS.read_text() if mounts is None else mounts).splitlines()
    except OSError:
        return 0.0
    path, best, kind = os.path.realpath(directory), "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = _unescaped(left.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two at one place the later covers the other.
        if inside and len(point) >= len(best):
            best, kind = point, right.partition(" ")[0]
    return _LATE.get(kind, 0.0)


def _unescaped(point: str) -> str:
    """The kernel writes blanks and backslashes of a mount point as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
