"""Retired content that comes again, beside a disk that does not write its marks.

What is current at the next start is what was acknowledged last.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node, running
from weightd.errors import IoError, NotResident
from weightd.model import GenerationId, Key
from weightd.store import NoSpace, Store

CAPACITY = 10 * BLOCK
KEY = Key("model")


@contextmanager
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No mark of a retirement can be written."""

    def refuse(store: Store, generation: GenerationId) -> None:
        raise NoSpace("retirement", "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "mark_superseded", refuse)
        yield


async def current(node: Node) -> bytes:
    """The content that a lookup answers."""
    record = await node.cache.get(KEY)
    return (record.path / "model").read_bytes()


async def test_what_came_again_stays_current_although_its_predecessor_is_not_marked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK, "old")
        await node.cache.pin("one", KEY)
        await node.put("model", BLOCK, "new")
        await node.cache.pin("two", KEY)
        with refused(monkeypatch):
            assert (await node.put("model", BLOCK, "old")).created
            await node.cache.unpin("one", KEY)
            await node.restart()
            assert await current(node) == bytes_of("old", BLOCK)
        await node.restart()
        assert await current(node) == bytes_of("old", BLOCK)
        await node.cache.unpin("two", KEY)


async def test_what_was_not_acknowledged_is_not_current_at_the_next_start(root: Path) -> None:
    failing = False

    def reach(name: str) -> None:
        if failing and name == "retire.unmarked":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with running(root, CAPACITY, reach=reach) as node:
        await node.put("model", BLOCK, "old")
        await node.cache.pin("one", KEY)
        await node.put("model", BLOCK, "new")
        failing = True
        with pytest.raises(IoError):
            await node.put("model", BLOCK, "old")
        failing = False
        assert await current(node) == bytes_of("new", BLOCK)
        await node.restart()
        assert await current(node) == bytes_of("new", BLOCK)
        assert node.usage.retired_models == 1


@pytest.mark.parametrize("by", ["delete", "arrival"])
async def test_nothing_older_comes_back_for_what_went(
    root: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It goes only once what it replaced is known on disk to be retired."""
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK, "old")
        await node.cache.pin("one", KEY)
        with refused(monkeypatch):
            await node.put("model", BLOCK, "new")
            await node.put("other", BLOCK)
            if by == "delete":
                with pytest.raises(IoError):
                    await node.cache.delete(KEY)
            else:
                # The next in the order of use goes in its stead.
                await node.put("large", 8 * BLOCK)
                assert node.resident() == ["large", "model"]
            assert await current(node) == bytes_of("new", BLOCK)
        await node.cache.delete(KEY)
        await node.restart()
        with pytest.raises(NotResident):
            await node.cache.get(KEY)
