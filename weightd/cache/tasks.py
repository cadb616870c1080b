"""Tasks with an owner, and the way a coroutine waits for what it must not abandon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from weightd.errors import WeightdError

T = TypeVar("T")

log = logging.getLogger(__name__)


class Tasks:
    """Every task of the cache: named, referenced, and ended with it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start ``work``; what it raises and nobody awaits is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        # Asking for the exception marks it as seen; whoever awaits it still gets it.
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, WeightdError):
            log.debug("task %s ended with %r", task.get_name(), error)
        else:
            log.error("task %s failed; this is a bug", task.get_name(), exc_info=error)

    async def finish(self) -> None:
        """Wait until every task has ended by itself."""
        while self._running:
            await asyncio.wait(self._running)


class Rounds(Generic[T]):
    """A slow look whose outcome is shared by all who asked before it began.

    Who asks while one runs gets that of the next, which begins when it ends: the one that runs
    may have begun before what he wants to have seen.
    """

    def __init__(self, tasks: Tasks, name: str, look: Callable[[], Awaitable[T]]) -> None:
        self._tasks = tasks
        self._name = name
        self._look = look
        self._latest: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def next(self) -> T:
        """The outcome of a look that begins after this call; raises what the look raises.

        It goes on whoever stops waiting.
        """
        if self._next is None:
            self._next = self._tasks.spawn(self._round(self._latest), self._name)
        return await asyncio.shield(self._next)

    async def _round(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        # Who asks from here on waits for another one.
        self._latest, self._next = self._next, None
        return await self._look()


async def completed(work: Awaitable[T]) -> T:
    """Await ``work`` to its end even when cancelled; then say that it was cancelled.

    For steps that leave disk and ledger in agreement only when they are whole.
    """
    future = asyncio.ensure_future(work)
    cancelled = await ended(future)
    if cancelled is not None:
        # Seen, so that it is not reported as lost: the cancellation goes first.
        if not future.cancelled():
            future.exception()
        raise cancelled
    return future.result()


async def ended(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until ``future`` is done, whatever its outcome; answer a cancellation met meanwhile."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class Signal:
    """Wakes everybody who waits, each time something changed.

    There is no await between a waiter's test and its `wait`, so that no change
    falls between the two.
    """

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all who wait now."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next `notify`; False when ``seconds`` passed without one."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True
