"""Lookups on a slow disk, and many at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cache.node import BLOCK, running, soon
from weightd.model import Key

CAPACITY = 10 * BLOCK


async def test_a_check_that_takes_longer_than_it_lasts_is_answered_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        checked = 0
        check = node.store.check

        def slow(manifest: object) -> object:
            nonlocal checked
            checked += 1
            node.clock.advance(60.0)
            return check(manifest)  # type: ignore[arg-type]

        monkeypatch.setattr(node.store, "check", slow)
        node.clock.advance(60.0)
        await soon(node.cache.get(Key("model")))
        assert checked == 1


async def test_lookups_of_one_key_share_a_check(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.only_loops()
        node.clock.advance(60.0)
        checked = 0
        check = node.store.check

        def count(manifest: object) -> object:
            nonlocal checked
            checked += 1
            return check(manifest)  # type: ignore[arg-type]

        monkeypatch.setattr(node.store, "check", count)
        lookups = [asyncio.create_task(node.cache.get(Key("model"))) for _ in range(50)]
        # Who goes away leaves the check to the others.
        await asyncio.sleep(0)
        lookups[0].cancel()
        done = await soon(asyncio.gather(*lookups, return_exceptions=True))
        assert isinstance(done[0], asyncio.CancelledError)
        assert all(not isinstance(one, BaseException) for one in done[1:])
        assert checked == 1
