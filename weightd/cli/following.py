"""How far a fetch is, on stderr: a bar on a terminal, a line now and then otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

from weightd.cli.output import note
from weightd.cli.tables import GAP, shortened
from weightd.cli.terminal import Status, columns_of, is_utf8
from weightd.cli.words import progress
from weightd.client.records import Job
from weightd.units import format_bytes

LINE_SECONDS: Final = 30.0
"""How often a line is written where nobody watches."""

DRAW_SECONDS: Final = 0.1
_BAR: Final = 24
_NAME: Final = 16
"""No name is cut to less."""


class Following:
    """Shows jobs of one key; leaving it by Ctrl-C says that the fetch goes on."""

    def __init__(self, key: str, *, quiet: bool = False) -> None:
        self._key = key
        self._quiet = quiet
        self._status = Status()
        self._job: Job | None = None
        self._said = ("", float("-inf"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._status.clear()
        if isinstance(error, KeyboardInterrupt) and self._job is not None and not self._job.ended:
            note(
                f"the fetch of {self._key} goes on without you; end it with: "
                f"weightd fetch --cancel {self._job.id}"
            )

    def show(self, job: Job) -> None:
        """A job as it is now."""
        self._job = job
        now = time.monotonic()
        if self._quiet:
            return
        state, at = self._said
        terminal = self._status.width is not None
        often = DRAW_SECONDS if terminal else LINE_SECONDS
        if job.state == state and now - at < often:
            return
        self._said = (job.state, now)
        if terminal:
            how = told(job, bar_of(job, is_utf8(sys.stderr)))
            self._status.show(beside(self._key, how, self._status.width))
        else:
            note(f"{self._key}: {told(job)}")


def told(job: Job, bar: str = "") -> str:
    """A job in a line."""
    if job.state == "downloading":
        how = progress(job.bytes_done, job.bytes_total, job.rate, job.eta)
        return f"{bar}  {how}" if bar else f"downloading, {how}"
    if job.state == "done":
        return f"done, {format_bytes(job.bytes_done)}"
    waiting = {"queued": "waiting for its turn", "waiting": "waiting for room"}
    return f"{waiting.get(job.state, job.state)}, from {job.source}"


def beside(name: str, how: str, width: int | None) -> str:
    """A name, and how far it is: where both do not fit the name is cut first.

    >>> beside("meta-llama/Llama-3.1-70B-Instruct@0e9e39f2", "[###  ]  60%", 40)
    'meta-llam…Instruct@0e9e…  [###  ]  60%'
    """
    room = len(name) if width is None else max(_NAME, width - 2 - len(GAP) - columns_of(how))
    return f"{shortened(name, room)}{GAP}{how}"


def bar_of(job: Job, utf8: bool) -> str:
    return bar(job.bytes_done, job.bytes_total, utf8)


def bar(done: int, whole: int | None, utf8: bool, size: int = _BAR) -> str:
    """How much of something is done, as a bar of so many characters.

    >>> bar(50, 100, False, 10)
    '[#####     ]'
    """
    full = 0 if not whole else min(size, size * done // whole)
    mark = "█" if utf8 else "#"
    return f"[{mark * full}{' ' * (size - full)}]"
