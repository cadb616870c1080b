"""The threads that touch the disk, so that the event loop never does.

Three pools, so that none waits behind another's long work: short calls
(stat, publish, rename), transfers (one thread for as long as a body arrives),
and unlinking (one thread: deleting large files in parallel only slows down
those who read).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """The cache's thread pools; ``transfers`` bounds the bodies under way."""

    def __init__(self, transfers: int, short: int = 4) -> None:
        self._short = ThreadPoolExecutor(short, thread_name_prefix="weightd-disk")
        self._transfers = ThreadPoolExecutor(transfers, thread_name_prefix="weightd-transfer")
        self._unlinks = ThreadPoolExecutor(1, thread_name_prefix="weightd-unlink")

    def disk(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a short call."""
        return self._run(self._short, call, *args, **kwargs)

    def transfer(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that lasts as long as a peer sends."""
        return self._run(self._transfers, call, *args, **kwargs)

    def unlink(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that may take seconds, behind those before it."""
        return self._run(self._unlinks, call, *args, **kwargs)

    def close(self) -> None:
        """Wait for what runs, and end the threads.  Blocks; call it when nothing runs."""
        for pool in (self._short, self._transfers, self._unlinks):
            pool.shutdown()

    @staticmethod
    def _run(
        pool: ThreadPoolExecutor,
        call: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> asyncio.Future[T]:
        return asyncio.wrap_future(pool.submit(call, *args, **kwargs))
