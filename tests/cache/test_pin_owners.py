"""Pins that a user took at the replica door: that user's alone, and not without end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.node import BLOCK, STILL, Node, running
from weightd.errors import Forbidden, NotPinned, TooMany
from weightd.model import Key

CAPACITY = 10 * BLOCK
KEY = Key("model")
ONE, TWO = 1001, 1002


def owners(node: Node) -> dict[str | None, int | None]:
    return {view.holder: view.uid for view in node.cache.pins()}


async def test_a_pin_is_renewed_and_ended_by_its_own_user(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        assert (await node.cache.pin("a", KEY, uid=ONE)).created
        assert not (await node.cache.pin("a", KEY, ttl=60.0, uid=ONE)).created
        for refused in (node.cache.pin("a", KEY, uid=TWO), node.cache.unpin("a", KEY, TWO)):
            with pytest.raises(Forbidden, match="not taken by uid 1002"):
                await refused
        assert owners(node) == {"a": ONE}
        await node.cache.unpin("a", KEY, ONE)
        with pytest.raises(NotPinned):
            await node.cache.unpin("a", KEY, ONE)


async def test_a_pin_of_the_admin_is_nobody_elses(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("a", KEY)
        for refused in (node.cache.pin("a", KEY, uid=0), node.cache.unpin("a", KEY, 0)):
            with pytest.raises(Forbidden):
                await refused
        assert owners(node) == {"a": None}


async def test_the_admin_may_renew_and_end_any_and_it_stays_its_users(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("a", KEY, uid=ONE)
        await node.cache.pin("a", KEY, forever=True)
        assert owners(node) == {"a": ONE}
        await node.restart()
        assert owners(node) == {"a": ONE}
        await node.cache.unpin("a", KEY)


async def test_one_user_has_so_many_and_others_are_not_concerned(root: Path) -> None:
    options = replace(STILL, pins_per_uid=3)
    async with running(root, CAPACITY, options=options) as node:
        await node.put("model", BLOCK)
        storm = [node.cache.pin(f"h{n}", KEY, uid=ONE) for n in range(20)]
        outcomes = await asyncio.gather(*storm, return_exceptions=True)
        refused = [one for one in outcomes if isinstance(one, TooMany)]
        assert len(refused) == 17
        assert refused[0].limit == 3
        await node.restart()
        with pytest.raises(TooMany, match="3 pins of uid 1001, the limit"):
            await node.cache.pin("more", KEY, uid=ONE)
        held = next(iter(owners(node)))
        assert held is not None
        assert not (await node.cache.pin(held, KEY, uid=ONE)).created
        await node.cache.pin("b", KEY, uid=TWO)
        await node.cache.pin("c", KEY)
        await node.cache.unpin(held, KEY, ONE)
        await node.cache.pin("more", KEY, uid=ONE)
