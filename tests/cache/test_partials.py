"""What unfinished fetches left: counted from the start on, and the first to make room."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.api.origin import Origin
from tests.cache.doubles import Whole, bytes_of
from tests.cache.fetch_stories import KEY as MODEL
from tests.cache.fetch_stories import a_partial, source_of
from tests.cache.node import BLOCK, STILL, Node, leave_partial, running, soon
from weightd.cache import FetchTerms, PutTerms
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


async def test_it_stays_when_the_victims_beside_it_are_in_use(root: Path) -> None:
    """A refused arrival moves nothing, not even what was left unfinished."""
    await leave_partial(root, "older", 20, 200.0)
    await leave_partial(root, "younger", 20, 100.0)
    async with running(root, CAPACITY) as node:
        record = (await node.put("model", 60 * BLOCK)).record
        using = await asyncio.to_thread(os.open, record.path / "model", os.O_RDONLY)
        try:
            with pytest.raises(Blocked):
                await node.put("new", 50 * BLOCK)
        finally:
            os.close(using)
        assert partials(node) == ["older", "younger"]
        assert node.usage.parked == 40 * BLOCK
        await node.agree()
        await node.ask_again()
        await node.put("new", 41 * BLOCK)
        assert (partials(node), node.resident()) == ([], ["new"])


@pytest.mark.parametrize("in_use", [False, True])
async def test_it_is_dropped_while_it_is_decided_whether_it_goes(root: Path, in_use: bool) -> None:
    await leave_partial(root, "half", 20, 100.0)
    async with running(root, CAPACITY) as node:
        record = (await node.put("model", 80 * BLOCK)).record
        hold = node.workers.arm("doom", after=False)
        putting = asyncio.ensure_future(node.put("new", 30 * BLOCK))
        await soon(hold.met.wait())
        assert partials(node) == []
        assert node.cache._evictions.drop_partial(Key("half"))
        assert not node.cache._evictions.drop_partial(Key("half"))
        using = os.open(record.path / "model", os.O_RDONLY) if in_use else None
        hold.let_go()
        await soon(asyncio.wait([putting]))
        if using is not None:
            os.close(using)
            assert isinstance(putting.exception(), Blocked)
        await node.agree()
        assert partials(node) == []
        assert node.resident() == (["model"] if in_use else ["new"])


async def test_what_is_more_than_the_budget_by_now_is_no_reason_to_refuse(
    root: Path, origin: Origin
) -> None:
    """The model has become a small one meanwhile, and the budget too."""
    async with running(root, CAPACITY) as node:
        node.origin = origin
        await a_partial(node)
        ledger = node.cache.audit()
        (partial,) = node.cache._context.partials
        ledger.resize(BLOCK)  # and nobody has come yet to trim
        source = source_of(origin, {"config.json": bytes(10), "shard-1": b"", "shard-2": b""})
        outcome = await node.cache.fetch(MODEL, FetchTerms((source,), wait=30.0))
        assert outcome.record is not None
        assert partial.booked.bytes == 2 * BLOCK
        assert node.usage.used == BLOCK
        await node.cache.resize(CAPACITY, 0)
