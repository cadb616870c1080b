"""Whether the filesystem has room for the budget, given what others keep there."""

from __future__ import annotations

import os
from pathlib import Path

from weightd.settings.places import nearest_existing
from weightd.units import format_bytes


def shortage(capacity: int, min_free: int, total: int, others: int) -> str | None:
    """One line when less than the budget can be used now; all in bytes.

    ``others`` is what is on the filesystem and not weightd's.
    """
    usable = max(0, total - others - min_free)
    if usable >= capacity:
        return None
    return (
        f"{format_bytes(usable)} of the budget can be used now: others occupy "
        f"{format_bytes(others)} and {format_bytes(min_free)} must stay free"
    )


def shortage_at(root: Path, capacity: int, min_free: int) -> str | None:
    """The same, as it is before a daemon has counted: what is below ``root`` is weightd's.

    None also when this user may not look there.
    """
    try:
        own = _occupied(root) if root.is_dir() else 0
        figures = os.statvfs(nearest_existing(root))
    except OSError:
        return None
    used = (figures.f_blocks - figures.f_bfree) * figures.f_frsize
    total = used + figures.f_bavail * figures.f_frsize
    return shortage(capacity, min_free, total, max(0, used - own))


def _occupied(directory: Path) -> int:
    """Bytes of blocks below it, a file with several names once.  Raises OSError."""
    blocks: dict[int, int] = {}
    for place, _, files in os.walk(directory, onerror=_refuse):
        for name in (place, *(os.path.join(place, file) for file in files)):
            try:
                found = os.lstat(name)
            except FileNotFoundError:
                continue  # A daemon works here meanwhile.
            blocks[found.st_ino] = found.st_blocks
    return 512 * sum(blocks.values())


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
