"""What unfinished fetches left: counted from the start on, and the first to make room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.doubles import Whole, bytes_of
from tests.cache.node import BLOCK, STILL, Node, leave_partial, running, soon
from weightd.cache import PutTerms
from weightd.errors import Blocked
from weightd.model import Key

CAPACITY = 100 * BLOCK


def partials(node: Node) -> list[str]:
    return sorted(str(one.stored.key) for one in node.cache._context.partials)


async def test_it_counts_and_goes_before_any_model_the_oldest_first(root: Path) -> None:
    await leave_partial(root, "younger", 20, 100.0)
    await leave_partial(root, "older", 30, 200.0)
    async with running(root, CAPACITY) as node:
        usage = node.usage
        assert (usage.parked, usage.used, usage.evictable) == (50 * BLOCK,) * 3
        assert (await node.cache.snapshot()).parked_bytes == 50 * BLOCK
        await node.put("model", 60 * BLOCK)
        assert partials(node) == ["younger"]
        await node.put("other", 40 * BLOCK)
        assert partials(node) == []
        assert node.resident() == ["model", "other"]


async def test_a_dry_run_names_no_model_while_it_would_do(root: Path) -> None:
    await leave_partial(root, "half", 30, 200.0)
    async with running(root, CAPACITY) as node:
        await node.put("model", 60 * BLOCK)
        verdict = await node.cache.admission(40 * BLOCK, None)
        assert (verdict.verdict, verdict.victims) == ("fits", ())
        verdict = await node.cache.admission(41 * BLOCK, None)
        assert [victim.key for victim in verdict.victims] == [Key("model")]
        assert partials(node) == ["half"]
        await node.cache.resize(60 * BLOCK, 0)


async def test_it_goes_for_an_arrival_of_unknown_length(root: Path) -> None:
    await leave_partial(root, "half", 30, 200.0)
    async with running(root, CAPACITY) as node:
        await node.put("model", 60 * BLOCK)
        await node.cache.put(Key("new"), Whole(bytes_of("new", 40 * BLOCK)), PutTerms())
        assert partials(node) == []
        with pytest.raises(Blocked):
            await node.cache.put(Key("newer"), Whole(bytes_of("newer", BLOCK)), PutTerms())


async def test_a_smaller_budget_takes_it_before_any_model(root: Path) -> None:
    await leave_partial(root, "half", 30, 200.0)
    async with running(root, CAPACITY) as node:
        await node.put("model", 60 * BLOCK)
        await soon(node.cache.resize(65 * BLOCK, 0))
        assert partials(node) == []
        assert node.resident() == ["model"]
        await node.agree()
        assert node.usage.used == 60 * BLOCK


async def test_of_two_of_a_key_the_younger_is_kept(root: Path) -> None:
    """The older one was being dropped when the daemon was killed."""
    await leave_partial(root, "half", 30, 200.0)
    await leave_partial(root, "half", 20, 100.0)
    async with running(root, CAPACITY) as node:
        assert partials(node) == ["half"]
        assert node.usage.parked == 20 * BLOCK
        await node.until(lambda: node.usage.used == 20 * BLOCK)
        await node.put("model", CAPACITY)
        assert partials(node) == []


async def test_what_is_too_old_goes_by_itself(root: Path) -> None:
    await leave_partial(root, "half", 30, STILL.partial_ttl + 1.0)
    await leave_partial(root, "other", 20, STILL.partial_ttl - 60.0)
    async with running(root, CAPACITY) as node:
        await node.until(lambda: node.usage.used == 20 * BLOCK)
        assert partials(node) == ["other"]
        await node.put("model", CAPACITY)
