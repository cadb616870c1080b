"""What the settings want here: in order, last of all, kept as they say, and nothing by turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.origin import Origin
from tests.cache.doubles import bytes_of
from tests.cache.fetch_stories import FIRST, NEXT, a_partial, source_of
from tests.cache.fetch_stories import KEY as MODEL
from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache import FetchTerms, Wish
from weightd.cache.fetching.preload import AGAIN_SECONDS, HOLDER, IDLE_SECONDS
from weightd.errors import Blocked, FetchCancelled
from weightd.model import Key

A, B, C, D = (Key(name) for name in "abcd")


def wish(
    origin: Origin, key: Key, blocks: int, keep: float | str | None = None, body: str | None = None
) -> Wish:
    """A model of one file of so many blocks."""
    source = origin.file(f"{key}.bin", bytes_of(body or key, blocks * BLOCK))
    return Wish(key, (source,), keep)  # type: ignore[arg-type]


async def wished(node: Node, wishes: Sequence[Wish]) -> None:
    """Wish, and wait until nothing more comes of it."""
    await soon(node.cache.fetching.wish(wishes))
    await soon(node.only_loops())


async def tidied(node: Node) -> None:
    await soon(node.cache.fetching.tidy())
    await soon(node.only_loops())


def asked_for(origin: Origin) -> list[str]:
    """Whose bytes were asked for, in that order."""
    paths = [path for method, path in origin.asked if method == "GET"]
    return list(dict.fromkeys(path.removeprefix("/").removesuffix(".bin") for path in paths))


def states(node: Node) -> Mapping[str, str]:
    return {str(job.key): job.state for job in reversed(node.cache.fetching.views())}


async def until_asked(node: Node, origin: Origin, name: str) -> None:
    async with asyncio.timeout(30.0):
        while name not in asked_for(origin):
            await node.workers.disk(int)


# -- In which order ---------------------------------------------------------------------


async def test_they_come_in_order_one_at_a_time(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        origin.flowing.clear()
        await node.cache.fetching.wish([wish(origin, key, 2) for key in (C, A, B)])
        await until_asked(node, origin, "c")
        assert [states(node)[name] for name in "cab"] == ["downloading", "queued", "queued"]
        origin.flowing.set()
        await soon(node.only_loops())
        assert asked_for(origin) == ["c", "a", "b"]
        assert node.resident() == ["a", "b", "c"]


async def test_who_asks_goes_ahead_of_them(root: Path, origin: Origin) -> None:
    options = replace(STILL, fetch_concurrency=1)
    async with running(root, 10 * BLOCK, options=options) as node:
        origin.flowing.clear()
        await node.cache.fetching.wish([wish(origin, key, 1) for key in (A, B, C)])
        await until_asked(node, origin, "a")
        (asked,) = wish(origin, D, 1).sources
        await node.cache.fetch(D, FetchTerms((asked,)))
        # So does one of them for which somebody asks.
        await node.cache.fetch(C, FetchTerms(wish(origin, C, 1).sources))
        origin.flowing.set()
        await soon(node.only_loops())
        assert asked_for(origin) == ["a", "d", "c", "b"]


async def test_one_that_runs_keeps_nobody_waiting(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        origin.flowing.clear()
        await node.cache.fetching.wish([wish(origin, key, 1) for key in (A, B)])
        await until_asked(node, origin, "a")
        await node.cache.fetch(D, FetchTerms(wish(origin, D, 1).sources))
        await until_asked(node, origin, "d")
        assert states(node) == {"a": "downloading", "b": "queued", "d": "downloading"}
        origin.flowing.set()
        await soon(node.only_loops())


async def test_what_was_drained_is_gone_on_with_in_the_order_of_the_list(
    root: Path, origin: Origin
) -> None:
    async with running(root, 10 * BLOCK) as node:
        wishes = [wish(origin, key, 2) for key in (C, A, B)]
        origin.flowing.clear()
        await node.cache.fetching.wish(wishes)
        await until_asked(node, origin, "c")
        node.cache.drain()
        origin.flowing.set()
        await node.close()
        origin.asked.clear()
        await soon(node.open())
        await wished(node, wishes)
        assert asked_for(origin) == ["c", "a", "b"]
        assert node.resident() == ["a", "b", "c"]


# -- When not all fit ----------------------------------------------------------------------


async def test_what_does_not_fit_is_told_once_and_costs_nothing(
    root: Path, origin: Origin, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, 10 * BLOCK) as node:
        wishes = [wish(origin, A, 4), wish(origin, B, 8), wish(origin, C, 5), wish(origin, D, 11)]
        await wished(node, wishes)
        for _ in range(3):
            await tidied(node)
        assert node.resident() == ["a", "c"]
        assert states(node) == {"a": "done", "b": "failed", "c": "done", "d": "failed"}
        problems = {str(job.key): job.error for job in node.cache.fetching.views()}
        assert isinstance(problems["b"], Blocked)
        assert "evict a" in str(problems["b"])
        assert len(node.cache.fetching.views()) == 4
        assert asked_for(origin) == ["a", "c"]
        told = [one for one in caplog.records if one.message == "not preloaded"]
        assert [vars(one)["key"] for one in told] == ["b", "d"]
        assert (await node.cache.evictions(10))[0] == []
        # The origin is asked again after a while.
        before = len(origin.asked)
        node.clock.advance(AGAIN_SECONDS)
        await tidied(node)
        assert len(origin.asked) > before
        assert node.resident() == ["a", "c"]


async def test_what_did_not_fit_comes_as_soon_as_there_is_room(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        await wished(node, [wish(origin, A, 4), wish(origin, B, 8)])
        assert node.resident() == ["a"]
        await soon(node.cache.resize(12 * BLOCK, 0))
        await tidied(node)
        assert node.resident() == ["a", "b"]


async def test_one_wished_for_before_may_evict_one_wished_for_after(
    root: Path, origin: Origin
) -> None:
    async with running(root, 10 * BLOCK) as node:
        await wished(node, [wish(origin, B, 6)])
        await wished(node, [wish(origin, A, 6), wish(origin, B, 6)])
        await tidied(node)
        assert node.resident() == ["a"]
        assert asked_for(origin) == ["b", "a"]


async def test_who_asks_for_one_may_evict_for_it(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        wishes = [wish(origin, A, 6), wish(origin, B, 6)]
        await wished(node, wishes)
        terms = FetchTerms(wishes[1].sources, wait=30.0)
        assert (await soon(node.cache.fetch(B, terms))).record is not None
        assert node.resident() == ["b"]


@pytest.mark.parametrize(("capacity", "fits"), [(7, False), (8, True)])
async def test_what_is_here_of_it_counts(
    root: Path, origin: Origin, capacity: int, fits: bool
) -> None:
    """Of its four blocks two are here, and those are not to be had by a link."""
    async with running(root, capacity * BLOCK) as node:
        node.origin = origin
        other = Wish(A, (source_of(origin, NEXT, "other"),), None)
        await wished(node, [other])
        await a_partial(node)
        assert (node.usage.resident, node.usage.parked) == (4 * BLOCK, 2 * BLOCK)
        await wished(node, [other, Wish(MODEL, (source_of(origin, FIRST),), None)])
        assert node.resident() == (["a", "org/model"] if fits else ["a"])
        assert node.usage.parked == (0 if fits else 2 * BLOCK)


async def test_what_is_shared_with_what_is_here_costs_nothing(root: Path, origin: Origin) -> None:
    async with running(root, 5 * BLOCK) as node:
        node.origin = origin
        other = Wish(A, (source_of(origin, NEXT, "other"),), None)
        await wished(node, [other])
        await wished(node, [other, Wish(MODEL, (source_of(origin, FIRST),), None)])
        assert node.resident() == ["a", "org/model"]
        assert node.usage.used == 5 * BLOCK


async def test_what_somebody_gives_up_is_let_be_until_the_list_is_read_again(
    root: Path, origin: Origin
) -> None:
    async with running(root, 10 * BLOCK) as node:
        wishes = [wish(origin, A, 4), wish(origin, B, 4)]
        origin.flowing.clear()
        await node.cache.fetching.wish(wishes)
        await until_asked(node, origin, "a")
        (job,) = [job for job in node.cache.fetching.views() if job.key == A]
        await soon(node.cache.fetching.cancel(job.id))
        origin.flowing.set()
        await tidied(node)
        assert node.resident() == ["b"]
        assert states(node) == {"a": "cancelled", "b": "done"}
        await wished(node, wishes)
        assert node.resident() == ["a", "b"]


# -- How long they stay -------------------------------------------------------------------


async def test_kept_forever_is_pinned_while_it_is_wished_for(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        await wished(node, [wish(origin, A, 4, "forever")])
        # As it came, before anything could evict it.
        assert [(view.holder, view.forever) for view in node.cache.pins()] == [(HOLDER, True)]
        with pytest.raises(Blocked):
            await node.put("x", 8 * BLOCK)
        await wished(node, [])
        assert node.cache.pins() == []
        await node.put("x", 8 * BLOCK)


async def test_its_pin_goes_over_to_its_successor(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        await wished(node, [wish(origin, A, 4, "forever")])
        await tidied(node)
        successor = (await node.put("a", 3 * BLOCK, "successor")).record
        await tidied(node)
        await node.quiet()
        assert [view.generation for view in node.cache.pins()] == [successor.manifest.id]
        assert node.usage.used == 3 * BLOCK


async def test_kept_for_a_time_after_its_last_use(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        await wished(node, [wish(origin, A, 4, 3600.0)])
        await tidied(node)
        node.clock.advance(3000.0)
        await node.get("a")
        node.clock.advance(3000.0)
        await tidied(node)
        with pytest.raises(Blocked):
            await node.put("x", 8 * BLOCK)
        node.clock.advance(1000.0)
        await tidied(node)
        await node.put("x", 8 * BLOCK)
        assert node.resident() == ["x"]


# -- When the list changes -------------------------------------------------------------------


async def test_what_is_wished_for_no_more_is_given_up(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        origin.flowing.clear()
        wishes = [wish(origin, key, 2) for key in (A, B)]
        await node.cache.fetching.wish(wishes)
        await until_asked(node, origin, "a")
        asked = asyncio.ensure_future(node.cache.fetch(B, FetchTerms(wishes[1].sources, wait=30.0)))
        await until_asked(node, origin, "b")
        origin.flowing.set()
        await wished(node, [])
        # But for what somebody has asked for meanwhile.
        assert (await soon(asked)).record is not None
        assert states(node) == {"a": "cancelled", "b": "done"}
        assert node.usage.parked == 0


async def test_from_elsewhere_it_begins_anew(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        origin.flowing.clear()
        await node.cache.fetching.wish([wish(origin, A, 2)])
        await until_asked(node, origin, "a")
        source = origin.file("mirror.bin", bytes_of("mirror", 2 * BLOCK))
        origin.flowing.set()
        await wished(node, [Wish(A, (source,), None)])
        (job, before) = node.cache.fetching.views()
        assert (job.state, before.state) == ("done", "cancelled")
        assert isinstance(before.error, FetchCancelled)
        assert job.sources == (source,)


async def test_it_costs_nobody_what_he_uses(root: Path, origin: Origin) -> None:
    """Who had it would have it fetched again, and the two would take turns."""
    async with running(root, 10 * BLOCK) as node:
        await node.put("x", 8 * BLOCK)
        await wished(node, [wish(origin, A, 4)])
        assert node.resident() == ["x"]
        assert asked_for(origin) == []
        node.clock.advance(IDLE_SECONDS + 1.0)
        await tidied(node)
        assert node.resident() == ["a"]
