"""Whether what a process writes goes to systemd's journal, which reads a priority off each line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TextIO

ERROR: Final = "<3>"
"""An error's priority of sd-daemon(3), which the journal takes off."""


def is_journal(environ: Mapping[str, str], stream: TextIO) -> bool:
    """Whether a stream goes to systemd's journal, which says so in JOURNAL_STREAM."""
    descriptor = descriptor_of(stream)
    if descriptor is None:
        return False
    found = os.fstat(descriptor)
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def descriptor_of(stream: TextIO) -> int | None:
    """That of a stream, if it has one that is open."""
    try:
        descriptor = stream.fileno()
        os.fstat(descriptor)
    except (OSError, ValueError):
        return None
    return descriptor
