"""Whether what a process writes goes to systemd's journal, which reads a priority off each line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TextIO

ERROR: Final = "<3>"
"""An error's priority of sd-daemon(3), which the journal takes off."""


def is_journal(environ: Mapping[str, str], stream: TextIO) -> bool:
    """Whether a stream goes to systemd's journal, which says so in JOURNAL_STREAM."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
