"""What a cache is asked to do, one thing at a time, for tests that break it off or break it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from tests.cache import fetch_stories, upload_stories
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node, soon
from tests.store.damages import flip_byte
from weightd.cache.fetching.terms import ENDED
from weightd.errors import NotResident
from weightd.model import Key

KEY = Key("org/model")

CAPACITY = 10 * BLOCK

Story = Callable[[Node], Awaitable[object]]
Setting = Callable[[Node], Awaitable[None]]


# -- The stories, each with what has to be there before it -------------------------


async def nothing(node: Node) -> None:
    return


async def a_model(node: Node) -> None:
    await node.put("org/model", 4 * BLOCK)
    node.clock.advance(60.0)  # so that a lookup looks at the files


async def a_full_node(node: Node) -> None:
    for name in ("a", "b", "c"):
        await node.put(name, 3 * BLOCK)


async def a_pin(node: Node) -> None:
    await a_model(node)
    await node.cache.pin("replica", KEY)


async def a_retired_model(node: Node) -> None:
    await a_pin(node)
    await node.put("org/model", 4 * BLOCK, "new")


async def a_damaged_model(node: Node) -> None:
    await a_model(node)
    (file,) = (node.root / "models").glob("*/model/model")
    file.unlink()


async def a_model_with_another_byte(node: Node) -> None:
    await a_model(node)
    (file,) = (node.root / "models").glob("*/model/model")
    flip_byte(file)


async def a_pinned_model_with_another_byte(node: Node) -> None:
    await a_model_with_another_byte(node)
    await node.cache.pin("replica", KEY)


async def put(node: Node) -> object:
    return await node.put("org/model", 4 * BLOCK, "story")


async def put_archive(node: Node) -> object:
    return await node.put_tar("org/model", {f"shard-{n}": bytes_of(n, 100) for n in range(4)})


async def put_of_unknown_length(node: Node) -> object:
    return await node.put("org/model", 3 * BLOCK, "story", length=None)


async def get(node: Node) -> object:
    return await node.cache.get(KEY)


async def miss(node: Node) -> object:
    with pytest.raises(NotResident):
        await node.cache.get(KEY)
    return None


async def pin(node: Node) -> object:
    return await node.cache.pin("replica-2", KEY)


async def pin_for_a_while(node: Node) -> object:
    return await node.cache.pin("replica-2", KEY, ttl=30.0)


async def unpin(node: Node) -> object:
    await node.cache.unpin("replica", KEY)
    return None


async def delete(node: Node) -> object:
    await node.cache.delete(KEY)
    return None


async def content(node: Node) -> object:
    async with node.cache.content(KEY, "model"):
        await asyncio.sleep(0)
    return None


async def admission(node: Node) -> object:
    return await node.cache.admission(4 * BLOCK, KEY)


async def look_around(node: Node) -> object:
    await node.cache.peek(KEY)
    await node.cache.evictions(10)
    return await node.cache.snapshot()


async def warm(node: Node) -> object:
    return await node.cache.warmings.warm(KEY)


async def verify(node: Node) -> object:
    """The last line, which says what was found."""
    async with aclosing(await node.cache.verifications.begin(KEY)) as lines:
        *_, last = [line async for line in lines]
    return last


async def restore(node: Node) -> object:
    """What was retired arrives again."""
    return await node.put("org/model", 4 * BLOCK)


STORIES: dict[str, tuple[Setting, Story]] = {
    "put": (nothing, put),
    "put an archive": (nothing, put_archive),
    "put of unknown length": (nothing, put_of_unknown_length),
    "put that evicts": (a_full_node, put),
    "put that replaces": (a_model, put),
    "put that retires": (a_pin, put),
    "put the same": (a_model, restore),
    "put what was retired": (a_retired_model, restore),
    "put over damage": (a_damaged_model, put),
    "get": (a_model, get),
    "get what is damaged": (a_damaged_model, miss),
    "pin": (a_model, pin),
    "pin for a while": (a_model, pin_for_a_while),
    "unpin": (a_pin, unpin),
    "unpin what was retired": (a_retired_model, unpin),
    "delete": (a_model, delete),
    "content": (a_model, content),
    "upload that evicts": (a_full_node, upload_stories.upload),
    "mend an upload": (a_model, upload_stories.mend),
    "give up an upload": (nothing, upload_stories.give_up),
    "forget an upload": (nothing, upload_stories.forget),
    "admission": (a_full_node, admission),
    "look around": (a_model, look_around),
    "warm": (a_model, warm),
    "verify": (a_model, verify),
    "verify what is damaged": (a_model_with_another_byte, verify),
    "verify what is damaged and pinned": (a_pinned_model_with_another_byte, verify),
}

FETCHES: dict[str, tuple[Setting, Story]] = {
    "fetch": (nothing, fetch_stories.fetch),
    "fetch that evicts": (a_full_node, fetch_stories.fetch),
    "fetch for a holder": (nothing, fetch_stories.fetch_for_a_holder),
    "fetch what was begun": (fetch_stories.a_partial, fetch_stories.fetch_for_a_holder),
    "fetch what shares files": (
        fetch_stories.a_fetched_model,
        fetch_stories.fetch_another_that_shares,
    ),
    "fetch the next": (fetch_stories.a_fetched_model, fetch_stories.fetch_the_next),
    "fetch that retires": (
        fetch_stories.a_fetched_and_pinned_model,
        fetch_stories.fetch_the_next,
    ),
    "fetch what was put": (a_model, fetch_stories.fetch),
    "revalidate": (fetch_stories.a_fetched_model, fetch_stories.revalidate),
    "fetch together": (nothing, fetch_stories.fetch_together),
    "cancel a fetch": (nothing, fetch_stories.cancel),
}
"""The same of fetches; their node has an origin."""


async def is_as_good_as_new(node: Node) -> None:
    """Nothing is left, and the cache does what it always did."""
    await soon(node.only_loops())
    for job in node.cache.fetching.views():
        assert job.state in ENDED, job
        # With it goes what it left on the disk.
        await soon(node.cache.fetching.cancel(job.id))
    for upload in node.cache.uploads.views():
        await soon(node.cache.uploads.cancel(upload.id))
    await soon(node.cache._checks.check_all())
    await node.agree()
    assert not node.cache._context.publishing
    assert not node.cache._context.ledger.settling
    assert node.cache._admission.waiting == 0
    await soon(node.only_loops())
    await soon(node.put("afterwards", BLOCK))
    await soon(node.get("afterwards"))
    for view in node.cache.pins():
        assert view.holder is not None
        await soon(node.cache.unpin(view.holder, view.generation.key))
    await soon(node.put("large", CAPACITY))
    assert node.resident() == ["large"]
    await node.agree()
