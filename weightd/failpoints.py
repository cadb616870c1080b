"""Named instants at which a test can stop the process dead.

The store and the cache call ``reach(name)`` between steps whose order matters.
In service that is `unarmed`, which does nothing.  The kill tests arm one name
through ``WEIGHTD_FAILPOINT`` and restart the daemon on what was left behind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Reach: TypeAlias = Callable[[str], None]

VARIABLE: Final = "WEIGHTD_FAILPOINT"

NAMES: Final = frozenset(
    {
        "adopt.noted",
        "adopt.moved",
        "adopt.given-back",
        "ingest.begun",
        "ingest.file-written",
        "ingest.file-flushed",
        "ingest.noted",
        "ingest.linked",
        "ingest.parked",
        "ingest.opened",
        "ingest.taken-over",
        "ingest.copied",
        "ingest.sealed",
        "part.written",
        "part.flushed",
        "part.forgotten",
        "publish.manifest-flushed",
        "publish.renamed",
        "publish.parent-flushed",
        "publish.tidied",
        "retire.marked",
        "retire.renumbered",
        "retire.unmarked",
        "evict.seized",
        "evict.renamed-one",
        "evict.renamed-all",
        "evict.parents-flushed",
        "unlink.file-removed",
        "unlink.directory-removed",
        "pin.before-commit",
        "pin.committed",
        "unpin.before-commit",
        "unpin.committed",
    }
)
"""Every failpoint; a test kills the daemon at each and fails if one is never reached."""


def unarmed(name: str) -> None:
    """Pass a failpoint by."""


def from_environment(environ: Mapping[str, str]) -> Reach:
    """Arm what ``WEIGHTD_FAILPOINT=NAME[:COUNT]`` names.

    The process dies by SIGKILL when that point is reached for the COUNTth time.
    Raises ValueError for a name that is not in `NAMES`.
    """
    setting = environ.get(VARIABLE)
    if not setting:
        return unarmed
    name, _, count = setting.partition(":")
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}: {name!r} is not one of {', '.join(sorted(NAMES))}")
    left = int(count or "1")

    def reach(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach
