"""The bound on how much is logged when the same happens again and again."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from weightd.daemon.beside import beside

log = logging.getLogger(__name__)

LINES_MAX: Final = 200
"""Lines of one kind within `SECONDS`; the others are counted."""

SECONDS: Final = 10.0

KINDS_MAX: Final = 256
"""Kinds told apart; whatever is beyond them is one."""

_Kind: TypeAlias = tuple[str, int, str, object]

_OTHERS: Final[_Kind] = ("", logging.INFO, "other lines", None)


@dataclass(slots=True)
class _Count:
    since: float
    lines: int = 0
    left_out: int = 0


class Repeats(logging.Filter):
    """Lets so many lines of a kind pass in so many seconds, and then says how many it did not.

    A kind is what the code says, whatever the fields are, but for the code of a refusal: a storm
    of one refusal hides no other.  What is asked for with debug is not bounded.  For any thread.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._counts: dict[_Kind, _Count] = {}
        self._counting = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG or record.name == __name__:
            return True
        kind = (record.name, record.levelno, str(record.msg), record.__dict__.get("code"))
        with self._counting:
            count = self._count(kind)
            count.lines += 1
            if count.lines <= LINES_MAX:
                return True
            count.left_out += 1
            return False

    def _count(self, kind: _Kind) -> _Count:
        if kind not in self._counts and len(self._counts) >= KINDS_MAX:
            kind = _OTHERS
        return self._counts.setdefault(kind, _Count(self._now()))

    def tell(self, *, over: bool = False) -> None:
        """Say how many lines of each kind were left out, and count anew, where time is up.

        ``over`` is when it is the last time, and up for all of them.
        """
        due = self._now() - SECONDS
        with self._counting:
            ended = [kind for kind, one in self._counts.items() if over or one.since <= due]
            counts = [(kind, self._counts.pop(kind)) for kind in ended]
        for (name, level, message, code), count in counts:
            if count.left_out:
                figures = {"lines": count.left_out, "like": message, "of": name, "code": code}
                log.log(level, "lines were left out", extra=figures)

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell in time, for the block, and at its end."""
        try:
            async with beside(self._tell_forever(), "repeats"):
                yield
        finally:
            self.tell(over=True)

    async def _tell_forever(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            self.tell()
