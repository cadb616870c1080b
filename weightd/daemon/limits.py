"""What the system lets this process have."""

from __future__ import annotations

import logging
import resource
from typing import Final

CONNECTIONS_MAX: Final = 4096
CONNECTIONS_LEAST: Final = 32

OWN_DESCRIPTORS: Final = 256
"""Descriptors for databases, transfers, evictions, and connections that are turned away."""

DESCRIPTORS_EACH: Final = 3
"""Descriptors of a connection: its socket, and while content goes out the file and a duplicate."""

log = logging.getLogger(__name__)


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard one.

    An eviction keeps a descriptor for every file of its victims for as long as
    it takes, beside one for each connection.  The usual soft limit of 1024 is
    there for programs that use select(2), and this is none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        # A hard limit above what the kernel gives now; the soft one still stands.
        log.warning("the limit of open files stays at %d: %s", soft, error)


def connections_limit() -> int:
    """How many connections all doors may have, of the descriptors this process may open.

    All of them may read content at once, and leave what the daemon needs itself.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    places = (allowed - OWN_DESCRIPTORS) // DESCRIPTORS_EACH
    return max(CONNECTIONS_LEAST, min(CONNECTIONS_MAX, places))
