"""An event loop of an origin's own, for a client whose reads only a loop can cancel."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Told = TypeVar("Told")


class LoopThread:
    """One thread that runs coroutines for others, until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self._closed = False

    def submit(self, coroutine: Coroutine[Any, Any, Told]) -> concurrent.futures.Future[Told]:
        """Begin it; cancelling what is returned cancels it.  Raises RuntimeError when closed."""
        if self._closed:
            coroutine.close()
            raise RuntimeError("it is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what runs and end the thread; from any other thread, any number of times."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    """Cancel every other task of this loop and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
