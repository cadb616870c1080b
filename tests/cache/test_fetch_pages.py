"""What a fetch leaves in memory: what came while a replica waited for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.api.origin import PATIENCE, Origin, http_origin
from tests.cache.fetch_stories import FIRST, KEY, source_of
from tests.cache.node import BLOCK, Node, in_memory, running, soon
from tests.polling import eventually
from weightd.cache import FetchTerms
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.terms import Wish

CAPACITY = 100 * BLOCK
WHOLE = sum(map(len, FIRST.values()))


@pytest.fixture
def origin() -> Iterator[Origin]:
    with http_origin() as origin:
        yield origin


@asynccontextmanager
async def begun(root: Path, origin: Origin, **terms: object) -> AsyncIterator[tuple[Node, Job]]:
    """A fetch that nobody waits for, whose bytes are held back."""
    source = source_of(origin, FIRST)
    origin.flowing.clear()
    async with running(root, CAPACITY) as node:
        await soon(node.cache.fetch(KEY, FetchTerms((source,), **terms)))  # type: ignore[arg-type]
        yield node, live(node)


def live(node: Node) -> Job:
    job = node.cache.fetching._fetches.live(KEY)
    assert job is not None
    return job


async def left_by(origin: Origin, job: Job) -> int:
    """The bytes of the model's files that are, once it has been let come."""
    origin.flowing.set()
    await soon(job.over())
    assert job.state == "done"
    assert job.record is not None
    return sum((await asyncio.to_thread(in_memory, Path(job.record.path))).values())


@pytest.mark.parametrize("holder", [None, "replica"])
async def test_one_that_nobody_waits_for_leaves_nothing(
    root: Path, origin: Origin, holder: str | None
) -> None:
    async with begun(root, origin, holder=holder) as (_, job):
        assert await left_by(origin, job) == 0


async def test_one_that_is_preloaded_leaves_nothing(root: Path, origin: Origin) -> None:
    source = source_of(origin, FIRST)
    origin.flowing.clear()
    async with running(root, CAPACITY) as node:
        await node.cache.fetching.wish([Wish(KEY, (source,), keep="forever")])
        assert await left_by(origin, live(node)) == 0


async def test_one_that_is_waited_for_midway_leaves_what_came_then(
    root: Path, origin: Origin
) -> None:
    async with begun(root, origin) as (node, job):
        terms = FetchTerms(job.sources, wait=PATIENCE)
        waiting = asyncio.create_task(node.cache.fetch(KEY, terms))
        await joined(job)
        assert await left_by(origin, job) == WHOLE
        await soon(waiting)


async def test_one_whose_waiter_has_left_leaves_nothing(root: Path, origin: Origin) -> None:
    async with begun(root, origin) as (node, job):
        terms = FetchTerms(job.sources, wait=PATIENCE)
        waiting = asyncio.create_task(node.cache.fetch(KEY, terms))
        await joined(job)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert await left_by(origin, job) == 0


@pytest.mark.parametrize("leaves", [False, True])
async def test_who_follows_it_waits_for_it(root: Path, origin: Origin, leaves: bool) -> None:
    async with begun(root, origin) as (node, job):
        events = aiter(node.cache.fetching.events(job.id))
        await soon(anext(events))
        await joined(job)
        if leaves:
            await events.aclose()  # type: ignore[attr-defined]
        assert await left_by(origin, job) == (0 if leaves else WHOLE)
        if not leaves:
            await events.aclose()  # type: ignore[attr-defined]


async def joined(job: Job) -> None:
    """Until somebody waits for the job."""
    await eventually(lambda: job.awaited)
