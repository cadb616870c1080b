"""A life of a root in a process of its own, which ends at a failpoint."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.system.nursery import nursery
from weightd.failpoints import VARIABLE

UPLOADED: Final = frozenset(
    {"ingest.opened", "ingest.taken-over", "ingest.copied", "ingest.sealed"}
)
"""What only an upload passes, at which a whole daemon dies (tests/system/test_failpoints.py)."""


def live(
    life: Callable[[Sequence[str]], None], root: Path, failpoint: str
) -> tuple[bool, list[str]]:
    """Have it lived until the failpoint; whether it died of that, and what it had said.

    ``life`` is a function of a module, and is given the root alone.
    """
    log = root.parent / f"{root.name}.stderr"
    with log.open("wb") as sink:
        child = nursery().spawn(
            f"{life.__module__}:{life.__qualname__}",
            [str(root)],
            {VARIABLE: failpoint},
            sink.fileno(),
        )
    with child.stdout:
        said = child.stdout.read().decode()
    status = child.wait()
    assert status in (0, -signal.SIGKILL), log.read_text()
    return status != 0, said.splitlines()
