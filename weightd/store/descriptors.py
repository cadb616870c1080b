"""How many files this process may have open, and how many of them a seizure may take.

A seizure keeps a descriptor for every file of its victims until they have
moved.  It never asks for more than it can have: half of the limit at most, so
that a model which arrived can always go again, and what is left of the limit
at that moment, so that it takes none that a request is about to need.
"""

from __future__ import annotations

import os
import resource
from typing import Final

_SPARE: Final = 64
"""Left to whatever opens something while a seizure stands."""

_LEAST: Final = 8

# What the limit may be at most for the arithmetic here; some kernels say "unlimited".
_UNLIMITED: Final = 1 << 30


def limit() -> int:
    """How many files this process may have open (RLIMIT_NOFILE)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def most() -> int:
    """The most that one seizure may have open, whatever else goes on."""
    return max(_LEAST, limit() // 2)


def budget() -> int:
    """The most that a seizure may have open now.  Raises OSError."""
    # The listing's own descriptor is among those counted.
    taken = len(os.listdir("/proc/self/fd"))
    return max(_LEAST, min(most(), limit() - taken - _SPARE))
