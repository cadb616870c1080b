"""What goes on beside the daemon's life ends with it, and is heard of when it ends before."""

from __future__ import annotations

import asyncio
import logging

import pytest

from weightd.daemon.beside import beside


async def test_it_ends_with_the_block(caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with beside(work(), "work"):
        await asyncio.sleep(0)
        assert not ended.is_set()
    assert ended.is_set()
    assert not caplog.records


async def test_a_failure_is_told_while_the_block_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    failed = asyncio.Event()

    async def work() -> None:
        failed.set()
        raise RuntimeError("no such thing")

    async with beside(work(), "work"):
        await failed.wait()
        # The task ends in the step that raised, and is told of in the next.
        await asyncio.sleep(0)
        (line,) = caplog.records
    assert (line.levelno, vars(line)["task"]) == (logging.ERROR, "work")
    assert "no such thing" in caplog.text
