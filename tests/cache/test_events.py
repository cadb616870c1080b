"""What is told, in order, to whoever listens at whatever pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache import EVENT_TYPES, Event
from weightd.cache.events import EVENTS_KEPT
from weightd.model import Key

CAPACITY = 10 * BLOCK


async def told(node: Node, after: int = 0) -> list[Event]:
    """Everything told so far."""
    node.cache._context.events.end("test")
    return [event async for event in node.cache.events(after) if event is not None]


def kinds(events: list[Event]) -> list[tuple[str, object]]:
    return [(event.type, event.data.get("key")) for event in events]


async def test_a_story_in_order(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("a", 4 * BLOCK)
        await node.cache.pin("replica", Key("a"))
        await node.put("b", 6 * BLOCK, "old")
        await node.put("b", 6 * BLOCK, "new")
        await node.cache.unpin("replica", Key("a"))
        await node.put("c", 4 * BLOCK)
        await node.quiet()
        events = await told(node)
        assert kinds(events) == [
            ("published", "a"),
            ("pinned", "a"),
            ("published", "b"),
            ("evicted", "b"),  # the predecessor made room
            ("published", "b"),
            ("unpinned", "a"),
            ("evicted", "b"),
            ("published", "c"),
            ("end", None),
        ]
        first = events[0].seq
        assert [event.seq for event in events] == list(range(first, first + len(events)))
        assert {event.type for event in events} <= set(EVENT_TYPES)


async def test_replacement_and_refusal(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("a", 2 * BLOCK, "one")
        await node.put("a", 2 * BLOCK, "two")
        await node.cache.pin("replica", Key("a"))
        await node.put("a", 2 * BLOCK, "three")
        await asyncio.gather(node.put("b", 11 * BLOCK), return_exceptions=True)
        events = await told(node)
        assert kinds(events) == [
            ("published", "a"),
            ("published", "a"),
            ("replaced", "a"),
            ("pinned", "a"),
            ("published", "a"),
            ("retired", "a"),
            ("refused", "b"),
            ("end", None),
        ]
        assert events[6].data["code"] == "too-large"


async def test_a_listener_goes_on_where_it_was(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        events = node.cache.events()
        hearing = asyncio.ensure_future(following(events))
        await node.put("a", BLOCK)
        first = await hearing
        assert first is not None
        await node.put("b", BLOCK)
        assert kinds(await told(node, after=first.seq)) == [("published", "b"), ("end", None)]


async def test_it_hears_what_comes_and_that_nothing_comes(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, heartbeat=0.01)) as node:
        await node.put("before", BLOCK)
        events = node.cache.events()
        assert await following(events) is None
        await node.put("a", BLOCK)
        while (event := await following(events)) is None:
            pass
        assert (event.type, event.data["key"]) == ("published", "a")
        node.cache.drain()
        while (event := await following(events)) is None:
            pass
        assert (event.type, event.data["outcome"]) == ("end", "draining")
        # Whoever comes later is told at once, whatever happened after the end.
        await node.cache.delete(Key("a"))
        late = node.cache.events()
        event = await following(late)
        assert event is not None
        assert event.type == "end"
        for one in (events, late):
            assert [event async for event in one] == []


async def following(events: AsyncIterator[Event | None]) -> Event | None:
    return await soon(anext(events))


async def test_who_is_too_slow_is_told_how_much_was_missed(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        for n in range(EVENTS_KEPT + 5):
            node.cache._context.events.tell("published", key=str(n))
        events = await told(node)
        assert events[0].type == "lost"
        missed = events[0].data["missed"]
        assert missed == 6  # the end is kept as well
        assert events[1].seq == events[0].seq + 1
        assert len(events) == EVENTS_KEPT + 1


async def test_a_number_of_another_run_is_not_taken_for_one_of_this(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("a", BLOCK)
        events = await told(node, after=1000)
        assert [event.type for event in events] == ["lost", "published", "end"]


async def test_a_number_of_an_earlier_run_is_known_as_lost(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("a", BLOCK)
        last = (await told(node))[-1]
        node.clock.advance(1.0)
        await node.restart()
        for key in "bcd":
            await node.put(key, BLOCK, tick=0.0)
        events = await told(node, after=last.seq)
        assert kinds(events) == [
            ("lost", None),
            ("published", "b"),
            ("published", "c"),
            ("published", "d"),
            ("end", None),
        ]
        assert events[0].data["missed"] is None
