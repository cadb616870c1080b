"""Saying lines to whoever reads them, if anybody does."""

from __future__ import annotations

import os
import sys


def say(lines: str) -> None:
    """Print at once; that nobody reads on is no reason to fail, least of all a daemon's."""
    try:
        print(lines, flush=True)
    except BrokenPipeError:
        # What is still buffered is flushed when Python ends: that must not fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
