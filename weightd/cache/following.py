"""Work that lasts for as long as somebody follows it, told line by line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Self, TypeAlias

from weightd.cache.context import Context
from weightd.cache.records import Event, VerifyView, WarmView
from weightd.errors import Draining, IoError

FIRST_SECONDS: Final = 0.05
TOLD_SECONDS: Final = 0.5
"""Before the first line about how far it is, and between two."""

LOOKED_AT_SECONDS: Final = 0.5
"""Between two looks at whether a reading gives anything."""

View: TypeAlias = Callable[[bool], VerifyView | WarmView]
"""How far it is; whether it has ended is given."""


class Following:
    """What is told of ``task``, which ends when this is closed, also unread.

    That is ``progress`` now and then, None while all is quiet, and ``end`` with the outcome,
    which the task answers; one that was cancelled was for the daemon's end.
    """

    def __init__(self, context: Context, task: asyncio.Task[str], name: str, view: View) -> None:
        """Each line has the view under ``name``."""
        self._context = context
        self._task = task
        self._name = name
        self._view = view
        self._lines = self._told()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | None:
        return await anext(self._lines)

    async def aclose(self) -> None:
        """Want to know no more."""
        self._task.cancel()
        await self._lines.aclose()

    async def _told(self) -> AsyncGenerator[Event | None, None]:
        task, clock = self._task, asyncio.get_running_loop()
        seq, told, told_at = 0, (-1, ""), clock.time()
        await asyncio.wait([task], timeout=FIRST_SECONDS)
        while not task.done():
            view = self._view(False)
            if told != (view.bytes_done, view.state):
                seq, told, told_at = seq + 1, (view.bytes_done, view.state), clock.time()
                yield self._event(seq, "progress", view)
            elif clock.time() - told_at >= self._context.options.heartbeat:
                told_at = clock.time()
                yield None
            await asyncio.wait([task], timeout=TOLD_SECONDS)
        outcome = "draining" if task.cancelled() else task.result()
        yield self._event(seq + 1, "end", self._view(True), outcome=outcome)

    def _event(self, seq: int, type: str, view: VerifyView | WarmView, **more: object) -> Event:
        return Event(seq, type, self._context.clock.now(), {**more, self._name: view})


async def while_it_gives(
    work: asyncio.Future[Any],
    seen: Callable[[], object],
    seconds: float,
    call: Callable[[], str],
    draining: asyncio.Future[Any] | None = None,
) -> None:
    """Wait for the end of a reading in a thread, of which ``seen`` is how far it is.

    Raises IoError, which names the ``call``, when nothing more came for so many ``seconds``,
    and Draining once ``draining`` is done.
    """
    clock = asyncio.get_running_loop()
    before, at = seen(), clock.time()
    waits = [work] if draining is None else [work, draining]
    while not work.done():
        if draining is not None and draining.done():
            raise Draining
        if before != (now := seen()):
            before, at = now, clock.time()
        left = at + seconds - clock.time()
        if left <= 0:
            raise IoError(call=call(), error=f"the disk gave nothing for {seconds:g} s")
        await asyncio.wait(
            waits, timeout=min(left, LOOKED_AT_SECONDS), return_when=asyncio.FIRST_COMPLETED
        )


def rate_and_eta(
    began_at: float | None, now: float, done: int, total: int
) -> tuple[float, float | None]:
    """Bytes a second since it began, and the seconds to go at that rate."""
    spent = 0.0 if began_at is None else now - began_at
    rate = done / spent if spent > 0 else 0.0
    return rate, (total - done) / rate if rate else None
