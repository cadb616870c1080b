"""What goes on beside the daemon's life, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

log = logging.getLogger(__name__)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Have ``work`` go on for the block, and end with it.

    What it fails with is a fault of weightd's own: it is logged when it happens, and the block
    goes on without it.
    """
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _tell_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    figures = {"task": task.get_name()}
    log.error("a task of the daemon failed; this is a bug", exc_info=error, extra=figures)
