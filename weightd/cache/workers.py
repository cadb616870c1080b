"""The threads that touch the disk, so that the event loop never does.

A pool for each kind of work, so that none waits behind another's: reads, which
every lookup needs, never stand behind a flush, nor behind a search of /proc.

- ``disk``: reads and stat calls; a few threads.
- ``seize``: locks and leases, of evictions and of looks.  One thread: two
  seizures at once would see each other's descriptors.
- ``commit``: what flushes, such as publications and marks.  One thread.
- ``pins``: the record of pins, one thread: no pin waits behind another flush.
- ``housekeep``: what is slow and urgent to nobody, such as searching /proc and
  writing down recency.  One thread.
- ``settle``: commits of the whole filesystem, which may take seconds.  One thread:
  who asks meanwhile shares the next, see `Rounds`.
- ``transfer``: one thread for as long as a body arrives.
- ``fetch``: the streams of fetches, and their listings.
- ``verify``: one thread, whose reads are idle ones.
- ``warm``: one thread, which reads as fast as the disk can.
- ``unlink``: one thread; deleting large files in parallel only slows down
  those who read.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

STREAM_THREADS: Final = 64
"""What the streams of all fetches together may take of the threads of fetches, ..."""

FETCH_THREADS: Final = STREAM_THREADS + 32
"""... so that some are always left for listings and for ending what runs."""


class Workers:
    """The cache's thread pools; ``transfers`` bounds the bodies under way."""

    def __init__(self, transfers: int, reads: int = 4) -> None:
        self._reads = ThreadPoolExecutor(reads, thread_name_prefix="weightd-disk")
        self._seizures = ThreadPoolExecutor(1, thread_name_prefix="weightd-seize")
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="weightd-commit")
        self._pins = ThreadPoolExecutor(1, thread_name_prefix="weightd-pins")
        self._housekeeping = ThreadPoolExecutor(1, thread_name_prefix="weightd-housekeeping")
        self._settling = ThreadPoolExecutor(1, thread_name_prefix="weightd-settle")
        self._transfers = ThreadPoolExecutor(transfers, thread_name_prefix="weightd-transfer")
        self._fetches = ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="weightd-fetch")
        self._verifications = ThreadPoolExecutor(1, thread_name_prefix="weightd-verify")
        self._warmings = ThreadPoolExecutor(1, thread_name_prefix="weightd-warm")
        self._unlinks = ThreadPoolExecutor(1, thread_name_prefix="weightd-unlink")

    def disk(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a call that reads and is short."""
        return self._run(self._reads, call, *args, **kwargs)

    def seize(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that takes locks and leases."""
        return self._run(self._seizures, call, *args, **kwargs)

    def commit(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that changes directories and flushes them."""
        return self._run(self._commits, call, *args, **kwargs)

    def pins(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a call that changes the record of pins."""
        return self._run(self._pins, call, *args, **kwargs)

    def housekeep(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that is slow, and that no request waits for long."""
        return self._run(self._housekeeping, call, *args, **kwargs)

    def settle(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that makes the filesystem commit."""
        return self._run(self._settling, call, *args, **kwargs)

    def transfer(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that lasts as long as a peer sends."""
        return self._run(self._transfers, call, *args, **kwargs)

    def fetch(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that waits for an origin."""
        return self._run(self._fetches, call, *args, **kwargs)

    def verify(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that reads a whole model, when nobody else wants the disk."""
        return self._run(self._verifications, call, *args, **kwargs)

    def warm(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a call that reads a whole model for somebody who waits for it."""
        return self._run(self._warmings, call, *args, **kwargs)

    def unlink(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a call that may take seconds, behind those before it."""
        return self._run(self._unlinks, call, *args, **kwargs)

    def close(self) -> None:
        """Wait for what runs, and end the threads.  Blocks; call it when nothing runs."""
        for pool in (
            self._reads,
            self._seizures,
            self._commits,
            self._pins,
            self._housekeeping,
            self._settling,
            self._transfers,
            self._fetches,
            self._verifications,
            self._warmings,
            self._unlinks,
        ):
            pool.shutdown()

    @staticmethod
    def _run(
        pool: ThreadPoolExecutor,
        call: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> asyncio.Future[T]:
        # What is logged in the thread is of the same request.
        context = contextvars.copy_context()
        return asyncio.wrap_future(pool.submit(context.run, partial(call, *args, **kwargs)))
