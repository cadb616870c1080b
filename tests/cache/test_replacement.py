"""One key, one content after another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cache.doubles import Paused, Whole, bytes_of
from tests.cache.node import BLOCK, Node, occupied, running, soon
from weightd.cache import PutTerms
from weightd.errors import Blocked, Exists, NotResident
from weightd.model import Key

KEY = Key("model")
CAPACITY = 10 * BLOCK


def content(path: Path) -> bytes:
    return (path / "model").read_bytes()


async def test_the_same_content_is_not_created_again(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        first = await node.put("model", 2 * BLOCK)
        again = await node.put("model", 2 * BLOCK)
        assert (first.created, again.created) == (True, False)
        assert again.record.path == first.record.path
        assert node.cache._context.counters.puts["same"] == 1


async def test_content_that_is_named_by_its_digest_is_not_even_read(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        first = await node.put("model", 2 * BLOCK)
        body = Whole(b"")
        terms = PutTerms(length=BLOCK, unless_digest=first.record.manifest.digest)
        again = await node.cache.put(KEY, body, terms)
        assert not again.created
        assert not body.entered


async def test_identical_puts_at_once(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        puts = [node.put("model", 2 * BLOCK, tick=0) for _ in range(4)]
        outcomes = await soon(asyncio.gather(*puts))
        assert sorted(outcome.created for outcome in outcomes) == [False, False, False, True]
        assert len({outcome.record.path for outcome in outcomes}) == 1


async def test_different_puts_at_once(root: Path) -> None:
    """Each is acknowledged; one is current in the end, and only that one is on disk."""
    async with running(root, CAPACITY) as node:
        puts = [node.put("model", 2 * BLOCK, seed, tick=0) for seed in range(4)]
        outcomes = await soon(asyncio.gather(*puts))
        assert all(outcome.created for outcome in outcomes)
        await node.quiet()
        current = await node.get("model")
        assert [one.record.path for one in outcomes if one.record.path.exists()] == [current]


async def test_of_creations_at_once_one_succeeds(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        puts = [node.put("model", 2 * BLOCK, n, tick=0, create_only=True) for n in range(4)]
        outcomes = await soon(asyncio.gather(*puts, return_exceptions=True))
        refused = [outcome for outcome in outcomes if isinstance(outcome, Exists)]
        assert len(refused) == 3
        body = Whole(b"")
        with pytest.raises(Exists):
            await node.cache.put(KEY, body, PutTerms(length=BLOCK, create_only=True))
        assert not body.entered


async def test_a_pinned_predecessor_is_retired_until_its_pin_goes(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", 2 * BLOCK, "old")
        await node.cache.pin("replica", KEY)
        new = await node.put("model", 2 * BLOCK, "new")
        assert content(old.record.path) == bytes_of("old", 2 * BLOCK)
        assert content(await node.get("model")) == bytes_of("new", 2 * BLOCK)
        # A new holder gets the new one; the old holder renews what it has.
        assert (await node.cache.pin("other", KEY)).record.path == new.record.path
        renewed = await node.cache.pin("replica", KEY)
        assert renewed.record.path == old.record.path
        assert (renewed.created, renewed.record.current) == (False, False)
        await node.cache.unpin("replica", KEY)
        await node.quiet()
        assert not old.record.path.exists()


async def test_retired_content_that_comes_again_is_current_again(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", 2 * BLOCK, "old")
        await node.cache.pin("replica", KEY)
        new = await node.put("model", 2 * BLOCK, "new")
        again = await node.put("model", 2 * BLOCK, "old")
        await node.quiet()
        assert again.created
        assert await node.get("model") == old.record.path
        assert not new.record.path.exists()
        assert not (old.record.path.parent / "superseded").exists()
        # For good, whatever the order of publication was.
        await node.restart()
        assert await node.get("model") == old.record.path


async def test_what_came_of_retired_content_is_counted_until_it_is_gone(root: Path) -> None:
    """The arrival's own copy is on disk as well: the books never say less than is there."""
    async with running(root, CAPACITY) as node:
        await node.put("model", 2 * BLOCK, "old")
        await node.cache.pin("replica", KEY)
        await node.put("model", 2 * BLOCK, "new")
        hold = node.workers.arm("doom", after=False)
        coming = asyncio.create_task(node.put("model", 2 * BLOCK, "old"))
        await soon(hold.met.wait())
        held, _ = occupied(root)
        assert held <= node.usage.used
        hold.let_go()
        await soon(coming)


async def test_retired_content_comes_again_while_its_last_pin_goes(root: Path) -> None:
    """At whichever call to the disk the pin goes, the content is there in the end."""
    for which in (*range(1, 12), "abort"):
        async with running(root / str(which), CAPACITY) as node:
            await node.put("model", 2 * BLOCK, "old")
            await node.cache.pin("replica", KEY)
            await node.put("model", 2 * BLOCK, "new")
            hold = node.workers.arm(which, after=isinstance(which, int) and which % 2 == 0)
            coming = asyncio.create_task(node.put("model", 2 * BLOCK, "old"))
            met = asyncio.create_task(hold.met.wait())
            await soon(asyncio.wait([coming, met], return_when=asyncio.FIRST_COMPLETED))
            if coming.done():
                # It has fewer calls; the next one is that of the pin itself.
                hold.let_go()
            await node.cache.unpin("replica", KEY)
            hold.let_go()
            met.cancel()
            await soon(asyncio.wait([coming, met]))
            assert coming.result().record.current
            assert content(await node.get("model")) == bytes_of("old", 2 * BLOCK)
            await node.agree()
            assert node.usage.used == 2 * BLOCK


async def test_the_predecessor_stays_until_its_successor_is_published(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", 4 * BLOCK, "old")
        body = Paused(bytes_of("new", 4 * BLOCK), BLOCK)
        coming = asyncio.create_task(node.cache.put(KEY, body, PutTerms(length=4 * BLOCK)))
        await soon(body.paused.wait())
        assert await node.get("model") == old.record.path
        body.go_on()
        new = await soon(coming)
        await node.quiet()
        assert await node.get("model") == new.record.path
        assert not old.record.path.exists()


async def test_without_room_for_both_the_predecessor_goes_first(root: Path) -> None:
    """Although another model is idler."""
    async with running(root, CAPACITY) as node:
        await node.put("idle", 2 * BLOCK)
        await node.put("model", 7 * BLOCK, "old")
        await node.put("model", 7 * BLOCK, "new")
        assert node.resident() == ["idle", "model"]
        assert content(await node.get("model")) == bytes_of("new", 7 * BLOCK)


async def test_a_refused_replacement_leaves_the_old(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("kept", 4 * BLOCK)
        await node.cache.pin("replica", Key("kept"))
        old = await node.put("model", 4 * BLOCK, "old")
        with pytest.raises(Blocked):
            await node.put("model", 7 * BLOCK, "new")
        assert await node.get("model") == old.record.path


async def test_a_failed_replacement_that_needed_no_room_leaves_the_old(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", 4 * BLOCK, "old")
        body = Paused(bytes_of("new", 4 * BLOCK), BLOCK)
        coming = asyncio.create_task(node.cache.put(KEY, body, PutTerms(length=4 * BLOCK)))
        await soon(body.paused.wait())
        coming.cancel()
        await soon(asyncio.wait([coming]))
        assert await node.get("model") == old.record.path


async def test_a_chain_of_pinned_generations(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        for n in range(4):
            await node.put("model", 2 * BLOCK, n)
            await node.cache.pin(f"replica-{n}", KEY)
        assert (node.usage.models, node.usage.retired_models) == (1, 3)
        await restarted(node)
        for n in (1, 3, 0, 2):
            await node.cache.unpin(f"replica-{n}", KEY)
        await node.quiet()
        assert (node.usage.models, node.usage.retired_models) == (1, 0)
        assert content(await node.get("model")) == bytes_of(3, 2 * BLOCK)


async def restarted(node: Node) -> None:
    await node.restart()
    assert (node.usage.models, node.usage.retired_models) == (1, 3)


async def test_it_goes_only_once_its_predecessor_is_known_to_be_retired(root: Path) -> None:
    """Otherwise that would be current again at the next start."""
    async with running(root, CAPACITY) as node:
        await node.put("model", 2 * BLOCK, "old")
        await node.cache.pin("replica", KEY)
        hold = node.workers.arm("mark_superseded", after=False)
        coming = asyncio.create_task(node.put("model", 2 * BLOCK, "new"))
        await soon(hold.met.wait())
        deleting = asyncio.create_task(node.cache.delete(KEY))
        while not node.cache.audit().leaving(KEY):
            await asyncio.sleep(0)
        hold.let_go()
        outcome = await soon(coming)
        await soon(deleting)
        assert outcome.created
        assert not outcome.record.path.exists()
        await node.restart()
        with pytest.raises(NotResident):
            await node.get("model")
