"""Any one call that a fetch's threads make of the system fails: what is booked is what is there."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.origin import Origin
from tests.cache.fetch_stories import KEY, OTHER, fetch_of
from tests.cache.node import running, soon
from tests.cache.stories import CAPACITY, FETCHES, is_as_good_as_new
from tests.tiers import THOROUGH
from weightd.errors import WeightdError

CALLS = (
    *("open", "read", "write", "pwrite", "preadv", "ftruncate", "fchmod", "fsync", "fdatasync"),
    *("mkdir", "rename", "unlink", "rmdir", "link", "stat", "fstat", "scandir"),
)

THREADS = ("weightd-fetch", "weightd-commit")

STRIDE = 1 if THOROUGH else 17


class Disk:
    """Fails one call of a fetch's threads, by its number from `fail` on."""

    def __init__(self) -> None:
        self._left = 0
        self._error = errno.EIO
        self._counting = threading.Lock()
        self.failed = ""

    def fail(self, nth: int, error: int) -> None:
        self._left, self._error, self.failed = nth, error, ""

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name.startswith(THREADS):
                with self._counting:
                    self._left -= 1
                    fails = self._left == 0
                if fails:
                    self.failed = f"{name}{args}"
                    raise OSError(self._error, os.strerror(self._error))
            return call(*args, **kwargs)

        return failing


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    for name in CALLS:
        monkeypatch.setattr(os, name, disk.wrap(name, getattr(os, name)))
    return disk


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["eio", "enospc"])
@pytest.mark.parametrize("name", ["fetch what was begun", "fetch what shares files"])
async def test_every_call_of_its_threads_fails_once(
    quick_path: Path,
    origin: Origin,
    disk: Disk,
    name: str,
    error: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    setting, story = FETCHES[name]
    nth, failing = 1, True
    while failing:
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            await node.quiet()
            disk.fail(nth, error)
            try:
                await soon(story(node))
            except WeightdError:
                pass
            await soon(node.only_loops())
            failing, failed = bool(disk.failed), disk.failed
            disk.fail(0, error)
            # Asked again it comes, from what is here.
            node.clock.advance(3600.0)
            key = KEY if name == "fetch what was begun" else OTHER
            try:
                await node.agree()
                await soon(fetch_of(node, key=key))
                await is_as_good_as_new(node)
            except BaseException as found:
                found.add_note(f"call {nth} failed: {failed}")
                raise
        bugs = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert not bugs, (nth, failed, bugs)
        nth += STRIDE
    assert nth > 40
