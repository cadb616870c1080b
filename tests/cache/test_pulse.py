"""The pulse: one round at a time, whoever asks, and what it waits for by name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cache.node import running
from weightd.errors import IoError
from weightd.store import NoSpace


async def test_a_disk_that_hangs_is_told_of_and_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, 10**6) as node:
        assert await node.cache.pulse.beat() is None
        goes_on, asked = threading.Event(), []

        def hang() -> None:
            asked.append(1)
            assert goes_on.wait(60)

        monkeypatch.setattr(node.store, "prove", hang)
        try:
            for _ in range(3):
                said = await node.cache.pulse.beat(patience=0.05)
                assert said is not None
                assert f"The disk has not taken a small flushed write in {root} for 0 s." == said
            assert len(asked) == 1
        finally:
            goes_on.set()
        assert await node.cache.pulse.beat() is None
        assert node.cache.pulse.trouble is None


async def test_a_disk_that_fails_is_dead_and_one_that_is_full_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, 10**6) as node:

        def fail() -> None:
            raise IoError(call="a small flushed write", error="Read-only file system")

        def full() -> None:
            raise NoSpace("a small flushed write", "No space left on device")

        monkeypatch.setattr(node.store, "prove", fail)
        assert "Read-only file system" in str(await node.cache.pulse.beat())
        monkeypatch.setattr(node.store, "prove", full)
        assert await node.cache.pulse.beat() is None
