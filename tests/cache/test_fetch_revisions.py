"""A model that is asked for again at its origin, and is the same there under another revision."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.cache.doubles import PATIENCE, bytes_of
from tests.cache.node import BLOCK, STILL, Node, running
from weightd.cache import FetchOutcome, FetchTerms
from weightd.errors import IoError
from weightd.model import Key
from weightd.origins import Trust

KEY = Key("m")


@asynccontextmanager
async def shared(root: Path, place: Path) -> AsyncIterator[tuple[Node, Path]]:
    """A node, and a file on a shared filesystem that it may fetch."""
    place.mkdir()
    options = replace(STILL, trust=Trust(import_roots=(str(place),)))
    (place / "m").write_bytes(bytes_of("old", 3 * BLOCK))
    async with running(root, 10 * BLOCK, options=options) as node:
        yield node, place / "m"


async def fetched(node: Node, file: Path, *, holder: str | None = None) -> FetchOutcome:
    """Ask its origin for the model, whether it is here or not."""
    terms = FetchTerms((f"file://{file}",), revalidate=True, wait=PATIENCE, holder=holder)
    return await node.cache.fetch(KEY, terms)


def touch(file: Path) -> None:
    """The same bytes, which the origin takes for others."""
    os.utime(file, ns=(1, 1))


async def test_its_record_says_the_revision_that_was_seen_last(root: Path, tmp_path: Path) -> None:
    async with shared(root, tmp_path / "shared") as (node, file):
        first = (await fetched(node, file)).record
        touch(file)
        second = (await fetched(node, file)).record
        assert first is not None
        assert second is not None
        assert second.path == first.path
        assert second.manifest.revision != first.manifest.revision
        await node.restart()
        assert (await node.cache.get(KEY)).manifest == second.manifest
        assert node.usage.models == 1


async def test_a_record_that_cannot_be_written_is_no_reason_to_fail(
    root: Path, tmp_path: Path
) -> None:
    async with shared(root, tmp_path / "shared") as (node, file):
        first = (await fetched(node, file)).record
        touch(file)
        node.workers.fail_call("restate", IoError("rename", "Input/output error"))
        second = (await fetched(node, file)).record
        assert first is not None
        assert second is not None
        assert second.manifest == first.manifest
        third = (await fetched(node, file)).record
        assert third is not None
        assert third.manifest.revision != first.manifest.revision


async def test_what_replaced_it_meanwhile_stays_current(root: Path, tmp_path: Path) -> None:
    async with shared(root, tmp_path / "shared") as (node, file):
        await fetched(node, file)
        await node.cache.pin("reader", KEY)
        touch(file)
        hold = node.workers.arm("restate", after=False)
        again = asyncio.create_task(fetched(node, file))
        await asyncio.wait_for(hold.met.wait(), PATIENCE)
        put = asyncio.create_task(node.put("m", BLOCK, "new"))
        hold.let_go()
        await again
        await put
        for _ in range(2):
            record = await node.cache.get(KEY)
            assert (record.path / "m").read_bytes() == bytes_of("new", BLOCK)
            assert node.usage.retired_models == 1
            await node.restart()
