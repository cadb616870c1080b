from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import Served, serving


@pytest.fixture
async def no_task_left(anyio_backend: str) -> AsyncIterator[None]:
    """Fail a test that leaves an asyncio task of its own, after its other fixtures were torn down.

    anyio's plugin makes one task anew for every fixture it sets up or tears down.
    """
    before = asyncio.all_tasks()
    yield
    left = {
        task
        for task in asyncio.all_tasks() - before - {asyncio.current_task()}
        if "_call_in_runner_task" not in repr(task.get_coro())
    }
    assert not left, f"tasks left: {left}"


@pytest.fixture
async def served(root: Path) -> AsyncIterator[Served]:
    """The admin door over a cache with a budget of `BUDGET` bytes."""
    async with serving(root) as served:
        yield served
