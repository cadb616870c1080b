"""How much is remembered of fetches that have ended, and of those who asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.origin import PATIENCE, Origin, http_origin
from tests.cache.node import BLOCK, STILL, Node, running
from weightd.cache import FetchTerms
from weightd.cache.fetching import shelf
from weightd.errors import OriginFailed
from weightd.model import Key
from weightd.origins import Trust


@pytest.fixture
def origin() -> Iterator[Origin]:
    with http_origin() as origin:
        yield origin


async def fail(node: Node, origin: Origin, key: str, uid: int | None = None) -> None:
    """Fetch what the origin has not, until the end of that is written down."""
    terms = FetchTerms((f"{origin.url}/none",), wait=PATIENCE, uid=uid)
    with pytest.raises(OriginFailed):
        await node.cache.fetch(Key(key), terms)
    async with asyncio.timeout(PATIENCE):
        while node.cache.fetching.running:
            await asyncio.sleep(0.01)  # nothing announces it


def keys(node: Node) -> set[str]:
    return {str(job.key) for job in node.cache.fetching.views()}


async def written(node: Node) -> set[str]:
    """The keys of the fetches in the history."""
    database = node.cache.fetching._jobs._database
    return {str(one.key) for one in await asyncio.to_thread(database.fetches)}


async def test_the_oldest_of_too_many_ended_fetches_is_forgotten(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "ENDED_MAX", 4)
    monkeypatch.setattr(shelf, "FORGET_AT_ONCE", 3)
    async with running(root, 100 * BLOCK) as node:
        for count in range(6):
            await fail(node, origin, f"k{count}")
        assert keys(node) == {"k2", "k3", "k4", "k5"}
        assert len(await written(node)) == 6
        await fail(node, origin, "k6")
        assert await written(node) == keys(node) == {"k3", "k4", "k5", "k6"}
        await fail(node, origin, "k7")
        await node.cache.fetching.tidy()
        assert await written(node) == keys(node) == {"k4", "k5", "k6", "k7"}


async def test_a_start_remembers_no_more_of_them(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, 100 * BLOCK) as node:
        for count in range(6):
            await fail(node, origin, f"k{count}")
            node.clock.advance(1.0)
        monkeypatch.setattr(shelf, "ENDED_MAX", 4)
        await node.restart()
        assert await written(node) == keys(node) == {"k2", "k3", "k4", "k5"}


async def test_one_user_has_none_of_the_others_forgotten(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "ENDED_OF_ONE_USER_MAX", 2)
    options = replace(STILL, trust=Trust(allowed=(origin.url,)))
    async with running(root, 100 * BLOCK, options=options) as node:
        await fail(node, origin, "root")
        await fail(node, origin, "other", uid=1001)
        for count in range(4):
            await fail(node, origin, f"k{count}", uid=1000)
        assert keys(node) == {"root", "other", "k2", "k3"}
