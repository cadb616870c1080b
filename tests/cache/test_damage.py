"""Files that vanish or change: noticed, a miss, journalled, counted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node, running, soon
from weightd.errors import IoError, NotResident, Pinned
from weightd.model import Key

KEY = Key("model")
CAPACITY = 10 * BLOCK


def vanish(path: Path) -> None:
    (path / "model").unlink()


def shrink(path: Path) -> None:
    os.truncate(path / "model", BLOCK)


def grow(path: Path) -> None:
    os.truncate(path / "model", 3 * BLOCK)


def stray(path: Path) -> None:
    path.chmod(0o755)
    (path / "stray").write_bytes(b"")


def link(path: Path) -> None:
    vanish(path)
    (path / "model").symlink_to("/etc/passwd")


def all_gone(path: Path) -> None:
    (path / "model").unlink()
    path.rmdir()
    (path.parent / "manifest.json").unlink()
    path.parent.rmdir()


HARMS = [vanish, shrink, grow, link, all_gone]


@pytest.fixture(params=HARMS, ids=lambda harm: harm.__name__)
def harm(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    chosen: Callable[[Path], None] = request.param
    return chosen


async def harmed(node: Node, harm: Callable[[Path], None]) -> Path:
    await node.put("other", 2 * BLOCK)
    path = (await node.put("model", 2 * BLOCK)).record.path
    path.chmod(0o755)
    harm(path)
    node.clock.advance(60.0)
    return path


async def is_a_miss(node: Node, *, journalled: bool = True) -> None:
    await node.quiet()
    assert node.resident() == ["other"]
    counters = node.cache._context.counters
    assert counters.damaged_models == 1
    if journalled:
        assert counters.evictions["damage"] == 1
        (entry,) = (await node.cache.evictions(10))[0]
        assert (entry.key, entry.reason, entry.beneficiary) == (KEY, "damage", None)
    await node.get("other")


async def test_a_lookup_notices(root: Path, harm: Callable[[Path], None]) -> None:
    async with running(root, CAPACITY) as node:
        await harmed(node, harm)
        with pytest.raises(NotResident):
            await node.cache.get(KEY)
        await is_a_miss(node)
        assert node.cache._context.counters.lookups["miss"] == 1


async def test_the_first_pass_after_a_start_notices(
    root: Path, harm: Callable[[Path], None]
) -> None:
    async with running(root, CAPACITY) as node:
        await harmed(node, harm)
        await node.restart()
        if harm is all_gone:
            # What a start does not find it cannot miss.
            assert node.resident() == ["other"]
            return
        await soon(node.cache._checks.check_all())
        await is_a_miss(node)


@pytest.mark.parametrize("fresh", [False, True], ids=["later", "at once"])
async def test_putting_the_same_again_mends_it(
    root: Path, harm: Callable[[Path], None], fresh: bool
) -> None:
    """Whatever is in the books, what is acknowledged is on disk."""
    async with running(root, CAPACITY) as node:
        path = await harmed(node, harm)
        if fresh:
            node.cache._context.models[
                next(one.id for one in node.cache.audit().generations() if one.id.key == KEY)
            ].checked_at = node.clock.now()
        outcome = await node.put("model", 2 * BLOCK)
        assert outcome.created
        assert outcome.record.path == path
        assert (path / "model").read_bytes() == bytes_of("model", 2 * BLOCK)
        node.clock.advance(60.0)
        assert await node.get("model") == path


async def test_what_is_pinned_stays_on_disk(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        path = await harmed_and_pinned(node)
        with pytest.raises(NotResident):
            await node.cache.get(KEY)
        with pytest.raises(NotResident):
            await node.cache.pin("other", KEY)
        assert path.exists()
        assert node.usage.retired == 2 * BLOCK
        # Its holder may renew what it has, and nobody can put the same in its place.
        assert not (await node.cache.pin("replica", KEY)).created
        with pytest.raises(Pinned):
            await node.put("model", 2 * BLOCK)
        await node.put("model", 2 * BLOCK, "mended")
        await node.cache.unpin("replica", KEY)
        await node.quiet()
        assert not path.exists()
        assert node.cache._context.counters.evictions["damage"] == 1


async def harmed_and_pinned(node: Node) -> Path:
    path = (await node.put("model", 2 * BLOCK)).record.path
    await node.cache.pin("replica", KEY)
    grow(path)
    node.clock.advance(60.0)
    return path


async def test_content_notices_what_vanished_a_moment_ago(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("other", 2 * BLOCK)
        path = (await node.put("model", 2 * BLOCK, tick=0)).record.path
        vanish(path)
        with pytest.raises(NotResident):
            async with node.cache.content(KEY, "model"):
                pass
        with pytest.raises(NotResident):
            await node.cache.get(KEY)
        await is_a_miss(node)


async def test_two_lookups_at_once_count_it_once(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await harmed(node, vanish)
        gets = [node.cache.get(KEY) for _ in range(5)]
        outcomes = await soon(asyncio.gather(*gets, return_exceptions=True))
        assert all(isinstance(outcome, NotResident) for outcome in outcomes)
        await is_a_miss(node)


async def test_a_disk_that_does_not_answer_says_nothing_of_the_model(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", 2 * BLOCK)
        node.clock.advance(60.0)

        def check(*_: object) -> None:
            raise IoError(call="check", error="Input/output error")

        with monkeypatch.context() as failing:
            failing.setattr(node.store, "check", check)
            with pytest.raises(IoError):
                await node.cache.get(KEY)
        await node.get("model")


# -- A manifest that cannot be read ------------------------------------------------------------


def deface(path: Path) -> None:
    manifest = path.parent / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_bytes(b"{")


async def test_a_start_lets_go_of_what_it_cannot_read(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        path = await harmed(node, deface)
        await node.restart()
        while path.exists():
            await node.workers.disk(int)
        await is_a_miss(node, journalled=False)


async def test_a_start_keeps_what_it_cannot_read_and_somebody_pinned(root: Path) -> None:
    """And counts its bytes, which are nobody's to give away."""
    node = Node(root, CAPACITY)
    await node.open()
    try:
        path = (await node.put("model", 2 * BLOCK)).record.path
        await node.cache.pin("replica", KEY)
        deface(path)
        for _ in range(2):
            await node.restart()
            await node.cache._evictions.let_damaged_go()
            assert path.exists()
            assert node.resident() == []
            assert node.usage.doomed == 2 * BLOCK
        with pytest.raises(Exception, match="pinned"):
            await node.put("model", 2 * BLOCK)
        assert path.exists()
    finally:
        await node.close()


async def test_what_cannot_be_read_makes_way_for_the_same(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        path = (await node.put("model", 2 * BLOCK)).record.path
        await node.put("elsewhere", BLOCK)
        deface(path)
        await node.close()
        (root / "state.db").unlink()
        await node.open()  # pins unknown: nothing is let go by itself
        await node.cache._evictions.let_damaged_go()
        assert path.exists()
        await node.put("model", 2 * BLOCK)
        assert (path / "model").read_bytes() == bytes_of("model", 2 * BLOCK)


async def test_what_changed_after_it_was_looked_at_was_not_seen(root: Path) -> None:
    """The look that saw it whole answers who waited for it, and nobody after."""
    async with running(root, CAPACITY) as node:
        path = await harmed(node, lambda path: None)
        hold = node.workers.arm(1, after=True)
        getting = asyncio.create_task(node.cache.get(KEY))
        await soon(hold.met.wait())
        vanish(path)
        node.clock.advance(60.0)
        hold.let_go()
        await soon(getting)
        with pytest.raises(NotResident):
            await node.cache.get(KEY)
        await is_a_miss(node)


async def test_a_stranger_s_file_damages_nothing(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        path = await harmed(node, stray)
        assert await node.get("model") == path
        assert node.cache._context.counters.damaged_models == 0
