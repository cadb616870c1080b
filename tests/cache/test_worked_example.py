"""The worked example, on a real directory at ten blocks for a gigabyte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.doubles import Whole
from tests.cache.node import BLOCK, Node, running
from weightd.cache import PutTerms
from weightd.errors import Blocked, TooLarge
from weightd.model import Key

GB = 10 * BLOCK


def used(node: Node) -> int:
    return node.usage.used // GB


async def test_the_four_answers(root: Path) -> None:
    async with running(root, 300 * GB) as node:
        await node.put("llama-70b", 140 * GB)
        await node.put("mixtral", 90 * GB)
        assert used(node) == 230
        await node.get("llama-70b")

        await node.put("qwen-72b", 145 * GB)
        await node.quiet()
        assert node.resident() == ["llama-70b", "qwen-72b"]
        assert used(node) == 285
        assert sum(node.cache._context.counters.evictions.values()) == 1

        await node.cache.pin("replica-1", Key("llama-70b"))
        body = Whole(b"")
        with pytest.raises(Blocked) as blocked:
            await node.cache.put(Key("falcon"), body, PutTerms(length=200 * GB))
        assert not body.entered
        assert blocked.value.reason == "pins"
        figures = ("bytes", "free", "evictable", "pinned", "arriving")
        assert [getattr(blocked.value, name) // GB for name in figures] == [200, 15, 145, 140, 0]
        assert [(one.holder, one.key) for one in blocked.value.holders] == [
            ("replica-1", "llama-70b")
        ]
        assert node.resident() == ["llama-70b", "qwen-72b"]

        with pytest.raises(TooLarge) as too_large:
            await node.cache.put(Key("grok"), body, PutTerms(length=400 * GB))
        assert not body.entered
        assert (too_large.value.bytes, too_large.value.capacity) == (400 * GB, 300 * GB)
        assert node.resident() == ["llama-70b", "qwen-72b"]
        assert used(node) == 285


async def test_two_replicas_pin_one_model(root: Path) -> None:
    """It is evictable only when both let go."""
    key = Key("llama-70b")
    async with running(root, 200 * GB) as node:
        await node.put("llama-70b", 140 * GB)
        await node.cache.pin("replica-1", key)
        await node.cache.pin("replica-2", key)
        for holder in ("replica-1", "replica-2"):
            with pytest.raises(Blocked):
                await node.put("qwen-72b", 145 * GB)
            await node.cache.unpin(holder, key)
        await node.put("qwen-72b", 145 * GB)
        assert node.resident() == ["qwen-72b"]


async def test_the_old_one_makes_room_for_its_successor(root: Path) -> None:
    async with running(root, 200 * GB) as node:
        first = await node.put("llama-70b", 140 * GB, "old")
        second = await node.put("llama-70b", 140 * GB, "new")
        await node.quiet()
        assert second.created
        assert not first.record.path.exists()
        assert used(node) == 140


async def test_replacing_a_pinned_key_keeps_the_old_generation_until_its_pin_goes(
    root: Path,
) -> None:
    key = Key("llama-70b")
    async with running(root, 300 * GB) as node:
        old = await node.put("llama-70b", 140 * GB, "old")
        await node.cache.pin("replica-1", key)
        new = await node.put("llama-70b", 140 * GB, "new")
        assert old.record.path.exists()
        assert (await node.get("llama-70b")) == new.record.path
        assert (node.usage.resident // GB, node.usage.retired // GB) == (140, 140)

        await node.cache.unpin("replica-1", key)
        await node.quiet()
        assert not old.record.path.exists()
        assert used(node) == 140


async def test_a_refused_replacement_leaves_the_old_model(root: Path) -> None:
    key = Key("llama-70b")
    async with running(root, 200 * GB) as node:
        old = await node.put("llama-70b", 140 * GB, "old")
        await node.cache.pin("replica-1", key)
        with pytest.raises(Blocked):
            await node.put("llama-70b", 140 * GB, "new")
        with pytest.raises(TooLarge):
            await node.put("llama-70b", 201 * GB, "new")
        assert (await node.get("llama-70b")) == old.record.path
