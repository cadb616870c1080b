"""What comes in the way of a fetch at any step of it, the last ones above all.

The fetch is held at the step, something else happens, and the fetch goes on.
One generation is answered in the end, a pin that was promised stands, nothing
lies about, and books and disk agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from tests.api.origin import Origin
from tests.cache.doubles import Gate, Hold, Whole, bytes_of
from tests.cache.fetch_stories import FIRST, KEY, NEXT, fetch_of
from tests.cache.node import BLOCK, Node, running, soon
from tests.cache.stories import CAPACITY, is_as_good_as_new
from weightd.cache import FetchOutcome, PutTerms
from weightd.cache.fetching.terms import FetchView
from weightd.errors import Draining, FetchCancelled, GenerationGone, TooLarge
from weightd.model import FileEntry, Key, content_digest

BEFORE = (
    *("list", "ingest.begun", "ingest.noted", "part.written"),
    *("ingest.file-written", "ingest.file-flushed", "ingest.file-flushed 3"),
)
LAST = (
    *("publish.manifest-flushed", "publish.renamed", "publish.parent-flushed"),
    *("pin.before-commit", "pin.committed", "close"),
)
COMMITS = ("ingest.begun", "ingest.noted", *LAST[:3])
"""In the one thread that whatever is published needs as well."""

HOLDER = "replica-2"


@dataclass
class Held:
    """A fetch for a holder that stands still."""

    node: Node
    fetch: asyncio.Future[FetchOutcome]
    hold: Hold

    @property
    def job(self) -> FetchView:
        (job,) = self.node.cache.fetching.views()
        return job

    async def ends(self) -> FetchOutcome:
        self.hold.let_go()
        await soon(asyncio.wait([self.fetch]))
        await soon(self.node.only_loops())
        return self.fetch.result()

    def is_here_and_pinned(self) -> None:
        assert self.job.state == "done"
        current = self.node.cache.audit().current(KEY)
        assert current is not None
        assert holders(self.node) == {HOLDER: current.id.digest}


def holders(node: Node) -> dict[str, str]:
    """What each holder has pinned."""
    return {str(view.holder): view.generation.digest for view in node.cache.pins()}


@asynccontextmanager
async def held(root: Path, origin: Origin, step: str) -> AsyncIterator[Held]:
    gate = Gate()
    async with running(root, CAPACITY, reach=gate.pass_by) as node:
        node.origin = origin
        await node.quiet()
        name, _, nth = step.partition(" ")
        hold = (
            gate.hold_at(name, int(nth or 1))
            if "." in name
            else node.workers.arm(name, after=False)
        )
        fetch = asyncio.ensure_future(fetch_of(node, holder=HOLDER, forever=True))
        try:
            await soon(hold.met.wait())
            yield Held(node, fetch, hold)
        finally:
            hold.let_go()
            await soon(asyncio.wait([fetch]))
        await is_as_good_as_new(node)


# -- It is deleted, drained, or has no room any more ---------------------------------------


@pytest.mark.parametrize("step", BEFORE)
async def test_deleted_before_it_is_published_it_has_not_happened(
    quick_path: Path, origin: Origin, step: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        deletion = asyncio.ensure_future(one.node.cache.fetching.cancel(one.job.id))
        with pytest.raises(FetchCancelled):
            await one.ends()
        await soon(deletion)
        assert one.job.state == "cancelled"
        assert one.node.resident() == []
        await one.node.agree()
        assert one.node.usage.used == 0


@pytest.mark.parametrize("step", LAST)
async def test_deleted_as_it_is_published_it_is_done(
    quick_path: Path, origin: Origin, step: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        deletion = asyncio.ensure_future(one.node.cache.fetching.cancel(one.job.id))
        assert (await one.ends()).record is not None
        await soon(deletion)
        one.is_here_and_pinned()


@pytest.mark.parametrize("step", BEFORE)
async def test_drained_before_it_is_published_it_goes_on_after_a_start(
    quick_path: Path, origin: Origin, step: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        one.node.cache.drain()
        with pytest.raises(Draining):
            await one.ends()
        assert one.job.state == "queued"
        await soon(one.node.restart())
        await soon(one.node.only_loops())
        one.is_here_and_pinned()


@pytest.mark.parametrize("step", LAST)
async def test_drained_as_it_is_published_it_is_done(
    quick_path: Path, origin: Origin, step: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        one.node.cache.drain()
        with pytest.raises(Draining):
            await one.ends()
        one.is_here_and_pinned()
        asked = list(origin.asked)
        await soon(one.node.restart())
        one.is_here_and_pinned()
        assert origin.asked == asked


@pytest.mark.parametrize("step", BEFORE)
async def test_a_smaller_budget_before_it_is_published_refuses_it(
    quick_path: Path, origin: Origin, step: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        await soon(one.node.cache.resize(3 * BLOCK, 0))
        with pytest.raises(TooLarge):
            await one.ends()
        assert one.job.state == "failed"
        await one.node.agree()
        assert one.node.usage.used == 0
        await one.node.cache.resize(CAPACITY, 0)


@pytest.mark.parametrize("step", LAST)
async def test_a_smaller_budget_as_it_is_published_lets_what_is_pinned_be(
    quick_path: Path, origin: Origin, step: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        await soon(one.node.cache.resize(3 * BLOCK, 0))
        assert (await one.ends()).record is not None
        one.is_here_and_pinned()
        assert one.node.usage.over_budget == BLOCK
        await one.node.cache.unpin(HOLDER, KEY)
        await trim(one.node)
        await one.node.agree()
        assert one.node.usage.used == 0
        await one.node.cache.resize(CAPACITY, 0)


async def trim(node: Node) -> None:
    upkeep = node.cache._upkeep
    assert upkeep is not None
    await soon(upkeep._trimming.trim())


async def test_what_came_while_it_waited_for_room_is_not_brought_again(
    quick_path: Path, origin: Origin
) -> None:
    """It has room for what it needs by then, and for no more."""
    async with running(quick_path / "root", CAPACITY) as node:
        node.origin = origin
        await node.put("x", 7 * BLOCK)
        await node.cache.pin("other", Key("x"))
        fetch = asyncio.ensure_future(fetch_of(node, wait=30.0))
        while not node.cache.waiting:
            await asyncio.sleep(0)
        shard = FIRST["shard-1"]
        await node.cache.put(Key("shard"), Whole(shard), PutTerms(length=len(shard)))
        await node.cache.unpin("other", Key("x"))
        record = (await soon(fetch)).record
        assert record is not None
        assert node.resident() == ["org/model", "shard"]
        assert node.usage.used == 4 * BLOCK
        assert origin.bodies("shard-1") == 0
        await is_as_good_as_new(node)


# -- Somebody puts the same key ----------------------------------------------------------------


@pytest.mark.parametrize("content", ["same", "other"])
@pytest.mark.parametrize("step", BEFORE + LAST)
async def test_a_put_of_the_same_key(
    quick_path: Path, origin: Origin, step: str, content: str
) -> None:
    async with held(quick_path / "root", origin, step) as one:
        files = FIRST if content == "same" else {"w": bytes_of("put", 3 * BLOCK)}
        put = asyncio.ensure_future(one.node.put_tar(str(KEY), files))
        if step not in (*COMMITS, "publish.parent-flushed", "pin.before-commit", "pin.committed"):
            await soon(asyncio.wait([put]))
        fetched = (await one.ends()).record
        stored = (await soon(put)).record
        assert fetched is not None
        await one.node.quiet()
        current = one.node.cache.audit().current(KEY)
        assert current is not None
        # What was answered stands where it was said to, and the holder has it.
        assert fetched.path.is_dir()
        assert holders(one.node) == {HOLDER: fetched.manifest.digest}
        assert current.id in (fetched.manifest.id, stored.manifest.id)
        assert len(list(one.node.cache.audit().generations())) == len(
            {current.id, fetched.manifest.id}
        )


@pytest.mark.parametrize("content", ["same", "other"])
@pytest.mark.parametrize("step", ["make", "receive", "publish"])
async def test_a_fetch_of_what_is_being_put(
    quick_path: Path, origin: Origin, step: str, content: str
) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        node.origin = origin
        hold = node.workers.arm(step, after=False)
        files = FIRST if content == "same" else {"w": bytes_of("put", 3 * BLOCK)}
        put = asyncio.ensure_future(node.put_tar(str(KEY), files))
        await soon(hold.met.wait())
        fetch = asyncio.ensure_future(fetch_of(node, holder=HOLDER, forever=True))
        if step == "receive":
            await soon(asyncio.wait([fetch]))
        hold.let_go()
        assert (await soon(put)).record.path.is_dir()
        fetched = (await soon(fetch)).record
        assert fetched is not None
        await node.quiet()
        assert fetched.path.is_dir()
        assert holders(node) == {HOLDER: fetched.manifest.digest}
        await is_as_good_as_new(node)


async def test_a_put_after_its_publication_is_what_one_without_a_pin_is_answered(
    quick_path: Path, origin: Origin
) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        node.origin = origin
        hold = node.workers.arm("close", after=False)
        fetch = asyncio.ensure_future(fetch_of(node))
        await soon(hold.met.wait())
        stored = await soon(node.put_tar(str(KEY), {"w": bytes_of("put", 3 * BLOCK)}))
        await node.until(lambda: len(list(node.cache.audit().generations())) == 1)
        hold.let_go()
        fetched = (await soon(fetch)).record
        assert fetched is not None
        assert fetched.manifest.id == stored.record.manifest.id
        assert fetched.path.is_dir()
        await is_as_good_as_new(node)


@pytest.mark.parametrize("insisted", [False, True])
async def test_a_put_between_two_pins(quick_path: Path, origin: Origin, insisted: bool) -> None:
    """The second holder has the successor, unless it insisted on what there is no more."""
    gate = Gate()
    async with running(quick_path / "root", CAPACITY, reach=gate.pass_by) as node:
        node.origin = origin
        hold = gate.hold_at("pin.before-commit")
        first = asyncio.ensure_future(fetch_of(node, holder="first", forever=True))
        digest = digest_of(FIRST) if insisted else None
        second = asyncio.ensure_future(fetch_of(node, holder="second", forever=True, digest=digest))
        await soon(hold.met.wait())
        (job,) = node.cache.fetching.views()
        assert job.callers == 2
        stored = await soon(node.put_tar(str(KEY), {"w": bytes_of("put", 3 * BLOCK)}))
        hold.let_go()
        assert (await soon(first)).record is not None
        if insisted:
            with pytest.raises(GenerationGone):
                await soon(second)
        else:
            record = (await soon(second)).record
            assert record is not None
            assert record.manifest.id == stored.record.manifest.id
        expected = {"first": digest_of(FIRST)}
        if not insisted:
            expected["second"] = stored.record.manifest.digest
        assert holders(node) == expected
        await is_as_good_as_new(node)


# -- Who has an older one pinned ---------------------------------------------------------------


async def test_a_holder_of_the_predecessor_has_what_it_fetched_as_well(
    quick_path: Path, origin: Origin
) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        node.origin = origin
        first = (await fetch_of(node, holder=HOLDER, forever=True)).record
        second = (await fetch_of(node, NEXT, holder=HOLDER, forever=True, revalidate=True)).record
        assert first is not None
        assert second is not None
        assert second.manifest.digest == digest_of(NEXT)
        pinned = {view.generation.digest for view in node.cache.pins()}
        assert pinned == {first.manifest.digest, second.manifest.digest}
        await node.cache.unpin(HOLDER, KEY)
        await node.quiet()
        assert [one.id.digest for one in node.cache.audit().generations()] == [digest_of(NEXT)]
        await is_as_good_as_new(node)


def digest_of(files: dict[str, bytes]) -> str:
    entries = [FileEntry(path, len(body), sha256(body).hexdigest()) for path, body in files.items()]
    return content_digest(entries)
