"""A fetch that is deleted or drained at any instant: nothing is half done, and nothing is lost.

A deleted one has not happened, or is done; one that was drained is gone on with
by the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.api.origin import Origin
from tests.cache.doubles import suspended
from tests.cache.fetch_stories import KEY, OTHER, fetch_of
from tests.cache.node import Node, running, soon
from tests.cache.stories import CAPACITY, FETCHES, Story, is_as_good_as_new
from tests.tiers import THOROUGH
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.terms import FetchView
from weightd.errors import Draining, FetchCancelled
from weightd.ledger import Generation
from weightd.model import Digest

NAMES = ["fetch what was begun", "fetch what shares files", "fetch that retires", "revalidate"]
if THOROUGH:
    NAMES += ["fetch that evicts", "fetch the next"]


Act = Callable[[Job], Coroutine[Any, Any, None]]


class Cut:
    """Does something at the n-th suspension of the job that a story begins."""

    def __init__(self, node: Node, nth: int, act: Callable[[Job], None]) -> None:
        self.left = nth
        self._act = act
        course = node.cache._fetching._fetches._course
        self._run = course.run
        course.run = self._cut_run  # type: ignore[method-assign]

    async def _cut_run(self, job: Job) -> Any:
        def each() -> None:
            self.left -= 1
            if self.left == 0:
                self._act(job)

        return await suspended(self._run(job), each)


def standing(node: Node) -> dict[str, Digest]:
    """What each key is answered with."""
    current = (node.cache.audit().current(key) for key in (KEY, OTHER))
    return {str(one.id.key): one.id.digest for one in current if one is not None}


async def told(story: Story, node: Node) -> FetchView:
    """The job as it is when the story is over, whatever its caller was told."""
    known = {job.id for job in node.cache.fetching.views()}
    try:
        await soon(story(node))
    except (FetchCancelled, Draining):
        pass
    await soon(node.only_loops())
    (job,) = [job for job in node.cache.fetching.views() if job.id not in known]
    return job


def has_its_pin(node: Node, job: FetchView) -> bool:
    generation: Generation | None = node.cache.audit().current(job.key)
    assert generation is not None
    return "replica-2" in generation.pins


def deleting(node: Node, deletions: list[asyncio.Future[None]]) -> Callable[[Job], None]:
    return lambda job: deletions.append(asyncio.ensure_future(node.cache.fetching.cancel(job.id)))


def draining(node: Node) -> Callable[[Job], None]:
    return lambda job: node.cache.drain()


@pytest.mark.parametrize("name", NAMES)
async def test_deleted_at_every_suspension(quick_path: Path, origin: Origin, name: str) -> None:
    setting, story = FETCHES[name]
    nth, met, states = 0, True, set()
    while met:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            before = standing(node)
            deletions: list[asyncio.Future[None]] = []
            cut = Cut(node, nth, deleting(node, deletions))
            job = await told(story, node)
            for deletion in deletions:
                await soon(deletion)
            met = cut.left <= 0
            states.add(job.state)
            assert job.state in ("cancelled", "done")
            assert len(node.cache._context.partials) == 0
            if job.state == "cancelled":
                assert standing(node) == before
            await is_as_good_as_new(node)
    assert states == {"cancelled", "done"}


@pytest.mark.parametrize("name", NAMES)
async def test_drained_at_every_suspension(quick_path: Path, origin: Origin, name: str) -> None:
    setting, story = FETCHES[name]
    nth, met, states = 0, True, set()
    while met:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            cut = Cut(node, nth, draining(node))
            job = await told(story, node)
            met = cut.left <= 0
            states.add(job.state)
            assert job.state in ("queued", "done")
            await soon(node.restart())
            await soon(node.only_loops())
            (job,) = [one for one in node.cache.fetching.views() if one.id == job.id]
            assert job.state == "done"
            assert str(job.key) in standing(node)
            if name == "fetch what was begun":
                assert has_its_pin(node, job)
            await is_as_good_as_new(node)
    assert states == {"queued", "done"}


# -- While every call to the disk is held ----------------------------------------------


HELD = NAMES if THOROUGH else ["fetch what was begun"]


async def acted_while_held(story: Story, node: Node, nth: int, act: Act) -> FetchView | None:
    """Do something while the n-th call to the disk is held; None when there are not so many."""
    hold = node.workers.arm(nth, after=False)
    telling = asyncio.ensure_future(told(story, node))
    meeting = asyncio.ensure_future(hold.met.wait())
    await soon(asyncio.wait([telling, meeting], return_when=asyncio.FIRST_COMPLETED))
    held = hold.met.is_set()
    acting = [
        asyncio.ensure_future(act(job))
        for job in node.cache._fetching._fetches._jobs.unended()
        if held
    ]
    # It is begun before the call goes on.
    await asyncio.sleep(0)
    hold.let_go()
    meeting.cancel()
    job = await telling
    for one in acting:
        await soon(one)
    return job if held else None


@pytest.mark.parametrize("name", HELD)
async def test_deleted_while_every_call_is_held(
    quick_path: Path, origin: Origin, name: str
) -> None:
    setting, story = FETCHES[name]
    nth, going = 0, True
    while going:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            before = standing(node)

            async def delete(job: Job, node: Node = node) -> None:
                await node.cache.fetching.cancel(job.id)

            job = await acted_while_held(story, node, nth, delete)
            going = job is not None
            if job is not None and job.state == "cancelled":
                assert standing(node) == before
                assert len(node.cache._context.partials) == 0
            await is_as_good_as_new(node)
    assert nth > 5


@pytest.mark.parametrize("name", HELD)
async def test_drained_while_every_call_is_held(
    quick_path: Path, origin: Origin, name: str
) -> None:
    setting, story = FETCHES[name]
    nth, going = 0, True
    while going:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)

            async def drain(job: Job, node: Node = node) -> None:
                node.cache.drain()

            job = await acted_while_held(story, node, nth, drain)
            going = job is not None
            await soon(node.restart())
            await soon(node.only_loops())
            jobs = node.cache.fetching.views()
            assert {one.state for one in jobs} == {"done"}
            await is_as_good_as_new(node)
    assert nth > 5


# -- Others who come in the last instant ------------------------------------------------


@pytest.mark.parametrize("revalidate", [False, True])
async def test_who_asks_as_the_last_pins_stand_is_answered_pinned_too(
    root: Path, origin: Origin, revalidate: bool
) -> None:
    async with running(root, CAPACITY) as node:
        node.origin = origin
        hold = node.workers.arm("close", after=False)
        first = asyncio.ensure_future(fetch_of(node, holder="first", forever=True))
        await soon(hold.met.wait())
        (job,) = node.cache.fetching.views()
        assert (job.state, job.record is not None) == ("publishing", True)
        late = asyncio.ensure_future(fetch_of(node, holder="late", forever=True, wait=0.0))
        again = asyncio.ensure_future(
            fetch_of(node, holder="again", forever=True, revalidate=revalidate)
        )
        for _ in range(3):
            await node.workers.disk(int)
        hold.let_go()
        for fetch in (first, late, again):
            assert (await soon(fetch)).record is not None
        assert {view.holder for view in node.cache.pins()} == {"first", "late", "again"}
        assert len(node.cache.fetching.views()) == 1 + revalidate
