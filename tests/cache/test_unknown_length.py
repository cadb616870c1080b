"""Bodies that do not say how long they are, and archives, which round up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cache.doubles import Paused, Whole, bytes_of, tar_of
from tests.cache.node import BLOCK, Node, running, soon
from weightd.cache import PutTerms
from weightd.errors import (
    Blocked,
    DigestMismatch,
    IncompleteBody,
    InvalidArchive,
    InvalidRequest,
    TooLarge,
)
from weightd.model import Key

KEY = Key("model")
CAPACITY = 10 * BLOCK


def body(size: int) -> Whole:
    return Whole(bytes_of("body", size))


async def test_it_grows_into_free_bytes(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("there", 4 * BLOCK)
        outcome = await node.cache.put(KEY, body(6 * BLOCK - 1), PutTerms())
        assert outcome.record.manifest.bytes == 6 * BLOCK - 1
        assert node.resident() == ["model", "there"]


async def test_it_evicts_nothing(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("there", 4 * BLOCK)
        with pytest.raises(Blocked) as blocked:
            await node.cache.put(KEY, body(6 * BLOCK + 1), PutTerms())
        assert "bytes=" in str(blocked.value)
        assert node.resident() == ["there"]


async def test_it_ends_at_the_budget(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(TooLarge):
            await node.cache.put(KEY, body(CAPACITY + 1), PutTerms())


async def test_declaring_its_most_makes_room_before_the_first_byte(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("there", 4 * BLOCK)
        await node.cache.put(KEY, body(2 * BLOCK), PutTerms(most=8 * BLOCK))
        assert node.resident() == ["model"]
        # What it did not need is free again.
        assert node.usage.free == 8 * BLOCK


async def test_more_than_the_most_is_refused(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(InvalidRequest):
            await node.cache.put(KEY, body(2 * BLOCK + 1), PutTerms(most=2 * BLOCK))
        assert node.resident() == []


async def test_two_that_grow_share_what_is_free(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        one, two = (Paused(bytes_of(n, 6 * BLOCK), 5 * BLOCK) for n in range(2))
        puts = [
            asyncio.create_task(node.cache.put(Key(name), source, PutTerms()))
            for name, source in (("one", one), ("two", two))
        ]
        await soon(asyncio.gather(one.paused.wait(), two.paused.wait()))
        one.go_on()
        two.go_on()
        outcomes = await soon(asyncio.gather(*puts, return_exceptions=True))
        assert sum(isinstance(outcome, Blocked) for outcome in outcomes) <= 1
        assert len(node.resident()) >= 1


async def test_an_archive_rounds_each_of_its_files_up(root: Path) -> None:
    async with running(root, 40 * BLOCK) as node:
        files = {f"part-{n}": bytes_of(n, 1) for n in range(20)}
        outcome = await node.put_tar("model", files)
        assert node.usage.resident == 20 * BLOCK
        assert outcome.record.manifest.bytes == 20
        stored = {path.name: path.read_bytes() for path in outcome.record.path.iterdir()}
        assert stored == files


async def test_an_archive_whose_files_do_not_fit_rounded_up_is_refused(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("there", BLOCK)
        data = tar_of({f"part-{n}": b"x" for n in range(20)})
        with pytest.raises((Blocked, TooLarge)):
            await node.cache.put(KEY, Whole(data), PutTerms(length=len(data), archive=True))
        assert node.resident() == ["there"]


@pytest.mark.parametrize(
    ("terms", "data", "error"),
    [
        (PutTerms(length=2 * BLOCK), b"short", IncompleteBody),
        (PutTerms(length=2), b"longer", InvalidRequest),
        (PutTerms(length=4, sha256="0" * 64), b"data", DigestMismatch),
        (PutTerms(length=4, archive=True), b"data", InvalidArchive),
        (PutTerms(length=0, archive=True), b"", InvalidArchive),
        (PutTerms(length=4, file="../x"), b"data", InvalidRequest),
        (PutTerms(length=4, archive=True, file="x"), b"data", InvalidRequest),
        (PutTerms(length=4, most=3), b"data", InvalidRequest),
    ],
)
async def test_a_bad_body_leaves_what_was_there(
    root: Path, terms: PutTerms, data: bytes, error: type[Exception]
) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", 2 * BLOCK)
        with pytest.raises(error):
            await node.cache.put(KEY, Whole(data), terms)
        assert await node.get("model") == old.record.path
        assert node.cache._context.counters.puts["created"] == 1


async def test_an_empty_file(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        outcome = await node.cache.put(KEY, Whole(b""), PutTerms(length=0))
        assert (outcome.record.path / "model").read_bytes() == b""
        await restart_finds(node, ["model"])


async def restart_finds(node: Node, keys: list[str]) -> None:
    await node.restart()
    assert node.resident() == keys


async def test_a_pipe_whose_producer_failed_replaces_nothing(root: Path) -> None:
    """`false | curl -T -` sends an empty body of unknown length."""
    async with running(root, CAPACITY) as node:
        await node.put("good", BLOCK)
        with pytest.raises(InvalidRequest, match="producer"):
            await node.cache.put(Key("good"), Whole(b""), PutTerms())
        assert (await node.cache.peek(Key("good"))).manifest.bytes == BLOCK
        outcome = await node.cache.put(Key("empty"), Whole(b""), PutTerms(length=0))
        assert outcome.record.manifest.bytes == 0


async def test_an_archive_that_does_not_say_so_is_no_model(root: Path) -> None:
    archive = tar_of({"config.json": b"{}"})
    async with running(root, 100 * BLOCK) as node:
        with pytest.raises(InvalidRequest, match="application/x-tar"):
            await node.cache.put(KEY, Whole(archive), PutTerms(length=len(archive)))
        kept = PutTerms(length=len(archive), file="m.tar")
        assert (await node.cache.put(KEY, Whole(archive), kept)).created
