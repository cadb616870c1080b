"""Fetches that an earlier run left: gone on with, and cancelled before they were."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.api.origin import PATIENCE, Origin, http_origin
from tests.cache.node import BLOCK, STILL, Node, running
from tests.polling import eventually
from weightd.cache import FetchTerms
from weightd.errors import Draining, IoError, OriginFailed
from weightd.model import Key

KEY = Key("m")


@asynccontextmanager
async def left_half_way(
    root: Path, *, query: str = "", holder: str | None = None, insists: str | None = None
) -> AsyncIterator[tuple[Node, Origin]]:
    """A node that is about to start, and was drained before its one fetch had ended."""
    with http_origin() as origin:
        source = origin.file("m.bin", bytes(BLOCK)) + query
        origin.flowing.clear()
        async with running(root, 100 * BLOCK) as node:
            terms = FetchTerms((source,), holder=holder, forever=holder is not None)
            await node.cache.fetch(KEY, terms)
            if insists is not None:
                await node.cache.fetch(KEY, FetchTerms((source,), digest=insists, holder="picky"))
            node.cache.drain()
            await asyncio.sleep(0)
            origin.flowing.set()
            yield node, origin


async def test_it_goes_on_though_nobody_asked_again(root: Path) -> None:
    """What nobody asks for is given up; while nobody could ask, that is no one's fault."""
    async with left_half_way(root) as (node, _):
        await node.restart()
        await node.cache.fetching.tidy()
        (job,) = node.cache.fetching.views()
        last = [event async for event in node.cache.fetching.events(job.id) if event is not None]
        assert last[-1].data["outcome"] == "done"
        assert node.resident() == ["m"]


async def test_it_can_be_cancelled_before_its_first_step(root: Path) -> None:
    async with left_half_way(root) as (node, origin):
        await node.restart()
        (job,) = node.cache.fetching.views()
        assert job.started_at is None
        async with asyncio.timeout(PATIENCE):
            await node.cache.fetching.cancel(job.id)
        (job,) = node.cache.fetching.views()
        assert job.state == "cancelled"
        assert node.cache.fetching.running == 0
        source = origin.file("m.bin", bytes(BLOCK))
        assert (
            await node.cache.fetch(KEY, FetchTerms((source,), wait=PATIENCE))
        ).record is not None


class Refusals(dict[str, tuple[int, dict[str, str]]]):
    """Refuses one file, not before the other has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.other_arrived = threading.Event()

    def get(self, path: str, default: Any = None) -> Any:
        if path != "/b.bin":
            return default
        assert self.other_arrived.wait(PATIENCE)
        return 404, {}


def listing(origin: Origin, files: dict[str, bytes]) -> str:
    """Serve files and a listing that tells their content; the source to fetch them by."""
    source = origin.listing("m", **files)
    told = [
        {"path": path, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        for path, body in files.items()
    ]
    origin.files["/m.json"] = json.dumps({"files": told}).encode()
    return source


async def half_fails(node: Node, origin: Origin) -> FetchTerms:
    """Fetch a model of which one file cannot be had; what to ask for again."""
    source = listing(origin, {"a.bin": bytes(3 * BLOCK), "b.bin": bytes(BLOCK)})
    origin.refusals = refusals = Refusals()
    terms = FetchTerms((source,), wait=PATIENCE)
    fetching = asyncio.create_task(node.cache.fetch(KEY, terms))
    jobs = node.cache.fetching.views
    await eventually(lambda: any(job.bytes_done == 3 * BLOCK for job in jobs()))
    refusals.other_arrived.set()
    with pytest.raises(OriginFailed):
        await fetching
    origin.refusals = {}
    # Past the pause after a failure.
    node.clock.advance(3600.0)
    return terms


async def test_what_cannot_be_parked_is_given_up(root: Path) -> None:
    async with running(root, 100 * BLOCK) as node:
        with http_origin() as origin:
            node.workers.fail_call("park", IoError("fsync", "Input/output error"))
            terms = await half_fails(node, origin)
            await node.agree()
            assert node.usage.used == 0
            assert (await node.cache.fetch(KEY, terms)).record is not None


async def test_what_cannot_be_gone_on_with_is_given_up(root: Path) -> None:
    async with running(root, 100 * BLOCK) as node:
        with http_origin() as origin:
            terms = await half_fails(node, origin)
            assert node.usage.parked == node.usage.used == 3 * BLOCK
            node.workers.fail_call("make", IoError("open", "Input/output error"))
            with pytest.raises(IoError, match="Input/output"):
                await node.cache.fetch(KEY, terms)
            await node.agree()
            assert node.usage.used == 0
            assert (await node.cache.fetch(KEY, terms)).record is not None
        await node.agree()


async def test_what_somebody_removed_begins_again(root: Path) -> None:
    async with running(root, 100 * BLOCK) as node:
        with http_origin() as origin:
            terms = await half_fails(node, origin)
            async with asyncio.timeout(PATIENCE):
                while node.cache.fetching.running:
                    await asyncio.sleep(0)  # until its note is let go, too
            for place in (root / "incoming").iterdir():
                shutil.rmtree(place)
            assert (await node.cache.fetch(KEY, terms)).record is not None


async def test_what_is_drained_as_it_begins_is_parked_again(root: Path) -> None:
    async with running(root, 100 * BLOCK) as node:
        with http_origin() as origin:
            terms = await half_fails(node, origin)
            hold = node.workers.arm("make", after=True)
            fetching = asyncio.create_task(node.cache.fetch(KEY, terms))
            await asyncio.wait_for(hold.met.wait(), PATIENCE)
            node.cache.drain()
            hold.let_go()
            with pytest.raises(Draining):
                await fetching
            origin.asked.clear()
            await node.restart()
            (job,) = node.cache.fetching.views()[:1]
            assert [one async for one in node.cache.fetching.events(job.id)]
            assert node.resident() == ["m"]
            assert origin.bodies("a.bin") == 0


async def test_a_holder_has_its_pin_after_a_restart_too(root: Path) -> None:
    async with left_half_way(root, holder="replica") as (node, _):
        await node.restart()
        (job,) = node.cache.fetching.views()
        assert [one async for one in node.cache.fetching.events(job.id)]
        (generation,) = node.cache.audit().generations()
        assert {name: pin.forever for name, pin in generation.pins.items()} == {"replica": True}


async def test_who_insisted_on_other_content_is_not_pinned_after_a_restart_either(
    root: Path,
) -> None:
    async with left_half_way(root, holder="replica", insists="a" * 64) as (node, _):
        await node.restart()
        (job,) = node.cache.fetching.views()
        assert [one async for one in node.cache.fetching.events(job.id)]
        assert [pin.holder for pin in node.cache.pins()] == ["replica"]


async def test_what_is_secret_in_a_source_is_kept_nowhere(root: Path) -> None:
    """It cannot go on by itself then; asked for again it goes on where it was."""
    async with left_half_way(root, query="?X-Amz-Signature=hush") as (node, origin):
        asked = node.cache.fetching.views()[0]
        await node.restart()
        (job,) = node.cache.fetching.views()
        assert job.state == "failed"
        assert isinstance(job.error, OriginFailed)
        assert "ask again" in job.error.words
        for file in root.rglob("*"):
            assert not file.is_file() or b"hush" not in file.read_bytes(), file
        assert asked.sources == job.sources
        signed = FetchTerms((f"{origin.url}/m.bin?X-Amz-Signature=hush",), wait=PATIENCE)
        assert (await node.cache.fetch(KEY, signed)).record is not None


async def test_what_was_asked_for_first_goes_on_first(root: Path) -> None:
    with http_origin() as origin:
        options = replace(STILL, fetch_concurrency=1)
        names = ("c", "a", "b")
        origin.flowing.clear()
        async with running(root, 100 * BLOCK, options=options) as node:
            for name in names:
                node.clock.advance(1.0)
                await node.cache.fetch(
                    Key(name), FetchTerms((origin.file(f"{name}.bin", bytes(BLOCK)),))
                )
            node.cache.drain()
            origin.flowing.set()
            await node.close()
            origin.asked.clear()
            await node.open()
            await node.only_loops()
            assert [path for method, path in origin.asked if method == "GET"] == [
                f"/{name}.bin" for name in names
            ]


async def test_a_note_is_at_hand_only_while_its_job_runs(root: Path) -> None:
    async with running(root, 100 * BLOCK) as node:
        with http_origin() as origin:
            terms = await half_fails(node, origin)
            partials = node.cache._context.partials
            await eventually(lambda: not node.cache.fetching.running)
            assert [partial.stored.note for partial in partials] == [b""]
            await node.restart()
            partials = node.cache._context.partials
            assert [partial.stored.note for partial in partials] == [b""]
            origin.asked.clear()
            assert (await node.cache.fetch(KEY, terms)).record is not None
            assert origin.bodies("a.bin") == 0
