"""Changes to the record of pins, in groups: what is asked for while one is flushed is the next."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias, TypeVar

from weightd.cache.context import Context
from weightd.errors import StateUnwritable
from weightd.store import CHANGES_MAX, PinChange, PinDatabase

T = TypeVar("T")

Told: TypeAlias = Callable[[StateUnwritable | None], object]
"""What is called when it is known: None for a change that is on stable storage."""


class _Asked(NamedTuple):
    change: PinChange
    told: Told | None
    waiting: asyncio.Future[StateUnwritable | None]
    context: contextvars.Context
    """That of who asked: whose request it is, is told with what comes of it."""


class PinWriter:
    """Brings changes to stable storage in the order in which they were asked for.

    All that is asked for at once costs one call to a thread, and one flush.
    """

    def __init__(self, context: Context, database: PinDatabase) -> None:
        self._context = context
        self._database = database
        self._asked: list[_Asked] = []
        self._writing = False

    def ask(
        self, change: PinChange, told: Told | None = None
    ) -> asyncio.Future[StateUnwritable | None]:
        """Have a change made, whoever waits for it; the future says how it went.

        So is ``told``, before that, and also when nobody waits any more.
        """
        waiting = asyncio.get_running_loop().create_future()
        asked = _Asked(change, told, waiting, contextvars.copy_context())
        self._asked.append(asked)
        if not self._writing:
            self._writing = True
            # It begins after all that the loop has to do now, which may ask for more.
            self._context.tasks.spawn(self._write(), "pins")
        return asked.waiting

    async def _write(self) -> None:
        try:
            while self._asked:
                group, self._asked = self._asked[:CHANGES_MAX], self._asked[CHANGES_MAX:]
                self._tell(group, await self._applied([one.change for one in group]))
        finally:
            self._writing = False

    async def _applied(self, changes: list[PinChange]) -> StateUnwritable | None:
        try:
            await self._context.workers.pins(self._database.apply, changes)
        except StateUnwritable as error:
            self._context.unwritable = error.error
            return error
        self._context.unwritable = None
        return None

    @staticmethod
    def _tell(group: list[_Asked], failure: StateUnwritable | None) -> None:
        loop = asyncio.get_running_loop()
        for one in group:
            if one.told is not None:
                # Each in a step of its own, so that none is in the way of another.
                loop.call_soon(one.told, failure, context=one.context)
            if not one.waiting.done():
                one.waiting.set_result(failure)


async def in_time(waiting: Awaitable[T], seconds: float) -> T:
    """What comes of a write.  Raises StateUnwritable when the disk hangs.

    What is written later stands all the same: a pin that nobody was told of is the safe side.
    """
    try:
        async with asyncio.timeout(seconds):
            return await waiting
    except TimeoutError:
        raise StateUnwritable(error=f"no answer from the disk within {seconds:g} s") from None
