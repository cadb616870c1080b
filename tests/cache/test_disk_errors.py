"""A disk that fails at any one call: an error that says so, and books that still agree."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.origin import Origin
from tests.cache.node import BLOCK, Node, running, soon
from tests.cache.stories import (
    CAPACITY,
    FETCHES,
    KEY,
    STORIES,
    a_full_node,
    a_model,
    a_pin,
    a_retired_model,
    is_as_good_as_new,
)
from tests.tiers import crossed
from weightd.errors import DiskFull, IoError, WeightdError
from weightd.model import Key
from weightd.store import NoSpace

FAILURES: dict[str, Callable[[], Exception]] = {
    "eio": lambda: IoError(call="a call", error="Input/output error"),
    "enospc": lambda: NoSpace("a call", "No space left on device"),
}


@pytest.mark.parametrize(("name", "failure"), crossed(STORIES | FETCHES, [*FAILURES]))
async def test_every_call_fails_once(
    quick_path: Path,
    origin: Origin,
    name: str,
    failure: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    setting, story = (STORIES | FETCHES)[name]
    nth, failed = 0, True
    while failed:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            await node.quiet()
            node.workers.fail(nth, FAILURES[failure]())
            try:
                await soon(story(node))
            except (WeightdError, NoSpace):
                pass
            await node.only_loops()
            failed = node.workers.failed
            node.workers.fail(0, FAILURES[failure]())
            await soon(node.cache._evictions.retirements.mark_again())
            await node.ask_again()
            await let_go_what_failed(node)
            await is_as_good_as_new(node)
    bugs = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not bugs, bugs


async def let_go_what_failed(node: Node) -> None:
    upkeep = node.cache._upkeep
    assert upkeep is not None
    await upkeep._trimming.trim()


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_retirement_that_the_disk_refused_is_made_to_last_later(
    root: Path, failure: str
) -> None:
    async with running(root, CAPACITY) as node:
        await a_pin(node)
        node.workers.fail_call("mark_superseded", FAILURES[failure]())
        # It has happened, and is acknowledged; its predecessor is retired in the books.
        assert (await node.put("org/model", 4 * BLOCK, "new")).created
        assert (node.usage.models, node.usage.retired_models) == (1, 1)
        assert not list(root.glob("models/*/superseded"))
        await node.cache._evictions.retirements.mark_again()
        assert list(root.glob("models/*/superseded"))
        await node.cache.delete(KEY)
        await node.restart()
        assert (node.usage.models, node.usage.retired_models) == (0, 1)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_predecessor_that_the_disk_does_not_let_go_fails_no_put(
    root: Path, failure: str
) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        node.workers.fail_call("doom", FAILURES[failure]())
        assert (await node.put("org/model", 4 * BLOCK, "new")).created
        assert (node.usage.models, node.usage.retired_models) == (1, 1)
        assert list(root.glob("models/*/superseded"))
        await let_go_what_failed(node)
        assert (node.usage.models, node.usage.retired_models) == (1, 0)


async def test_a_full_disk_that_moves_nothing_is_a_documented_answer(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_full_node(node)
        node.workers.fail_call("doom", FAILURES["enospc"]())
        with pytest.raises(DiskFull) as full:
            await node.put("new", 4 * BLOCK)
        assert full.value.bytes == 4 * BLOCK
        assert node.cache._context.counters.rejections["disk-full"] == 1
        node.workers.fail_call("doom", FAILURES["enospc"]())
        with pytest.raises(IoError, match="No space left"):
            await node.cache.delete(Key("a"))
        assert node.resident() == ["a", "b", "c"]
        await node.put("new", 4 * BLOCK)


@pytest.mark.parametrize("failure", FAILURES)
async def test_unlinking_that_fails_is_tried_again(
    root: Path, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await a_retired_model(node)
        unlink = node.store.unlink
        failures = [FAILURES[failure]() for _ in range(3)]

        def failing(*args: object) -> int:
            if failures:
                raise failures.pop()
            return unlink(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(node.store, "unlink", failing)
        await node.cache.delete(KEY)
        await node.put("other", 6 * BLOCK)
        assert not failures


@pytest.mark.parametrize("act", ["put", "delete"])
async def test_a_victim_that_the_disk_does_not_move_back_counts_until_it_is_gone(
    root: Path, act: str
) -> None:
    """Of the two victims of a put the other one stays."""
    refusing: list[Path] = []

    def reach(name: str) -> None:
        if name == "evict.renamed-all" and refusing:
            (refusing.pop() / "in-the-way").mkdir(parents=True)
            raise OSError(errno.EIO, "Input/output error")

    async with running(root, CAPACITY, reach=reach) as node:
        await a_full_node(node)
        place = node.cache._context.record(next(node.cache.audit().idle_first())).path.parent
        refusing.append(place)
        with pytest.raises(IoError, match="after Input/output error"):
            await (node.put("new", 7 * BLOCK) if act == "put" else node.cache.delete(Key("a")))
        assert node.resident() == ["b", "c"]
        journal, _ = await node.cache.evictions(10)
        assert [one.key for one in journal] == [Key("a")]
        await node.quiet()
        shutil.rmtree(place)
        await is_as_good_as_new(node)


@pytest.mark.parametrize("again", [False, True])
async def test_an_arrival_that_the_disk_does_not_take_back_counts_until_it_is_gone(
    root: Path, again: bool
) -> None:
    """The same content may come again before it went."""
    refusing = True

    def reach(name: str) -> None:
        if name == "publish.renamed" and refusing:
            (arrival,) = in_the_way
            arrival.mkdir()
            (arrival / "in-the-way").mkdir()
            raise OSError(errno.EIO, "Input/output error")
        if name == "publish.manifest-flushed":
            in_the_way[:] = (root / "incoming").iterdir()

    in_the_way: list[Path] = []
    async with running(root, CAPACITY, reach=reach) as node:
        with pytest.raises(IoError, match="after Input/output error"):
            await node.put("org/model", 4 * BLOCK)
        refusing = False
        shutil.rmtree(in_the_way[0])
        assert node.resident() == []
        assert (node.usage.used, node.usage.reserved) == (4 * BLOCK, 0)
        if again:
            await node.put("org/model", 4 * BLOCK)
            await node.get("org/model")
        await node.cache._evictions.let_damaged_go()
        await node.agree()
        assert node.resident() == (["org/model"] if again else [])
        await is_as_good_as_new(node)
