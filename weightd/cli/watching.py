"""How far a reading of a model is: a bar on a terminal, a line now and then otherwise."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from weightd.cli.following import DRAW_SECONDS, LINE_SECONDS, bar
from weightd.cli.output import note
from weightd.cli.terminal import Status, is_utf8
from weightd.cli.words import progress
from weightd.units import format_bytes

if TYPE_CHECKING:
    from weightd.client.records import Verification, Warming


class Watching:
    """How far one model is, on stderr; leaving it by Ctrl-C says that nothing goes on."""

    def __init__(self, what: str, key: str, *, quiet: bool) -> None:
        """``what`` it is that goes on."""
        self._what = what
        self._key = key
        self._quiet = quiet
        self._line = Status()
        self._whole = 0
        self._said = float("-inf")
        self.done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._line.clear()
        if kind is KeyboardInterrupt:
            read = f" after {format_bytes(self.done)} of {format_bytes(self._whole)}"
            how = read if self._whole else " before it began"
            note(f"the {self._what} of {self._key} was ended{how}; nothing was changed")

    def show(self, told: Verification | Warming) -> None:
        self.done, self._whole = told.bytes_done, told.bytes_total
        now = time.monotonic()
        terminal = self._line.width is not None
        often = DRAW_SECONDS if terminal else LINE_SECONDS
        if self._quiet or told.state == "ended" or now - self._said < often:
            return
        self._said = now
        if told.state == "queued":
            how = "waiting for its turn"
        else:
            how = progress(told.bytes_done, told.bytes_total, told.rate, told.eta)
        if terminal:
            drawn = bar(told.bytes_done, told.bytes_total, is_utf8(sys.stderr))
            self._line.show(f"{self._key}  {drawn}  {how}")
        else:
            note(f"{self._key}: {how}")
