"""What a fetch does when things go wrong half way: nothing is mixed, nobody is kept out."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.origin import PATIENCE, Origin
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache import FetchTerms
from weightd.errors import DigestMismatch, Forbidden, IoError
from weightd.model import Key
from weightd.origins import Trust
from weightd.store import Ingest

KEY = Key("m")
NAMES = ("a", "b", "c")


class Fault:
    """Fails the disk once, when a point is reached for the ``count``-th time."""

    def __init__(self) -> None:
        self.point, self.count = "", 0

    def arm(self, point: str, count: int) -> None:
        self.point, self.count = point, count

    def __call__(self, name: str) -> None:
        if name == self.point:
            self.count -= 1
            if self.count == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))


def write(place: Path, revision: str, when: int) -> None:
    for name in NAMES:
        (place / name).write_bytes(bytes_of(f"{revision} {name}", 2 * BLOCK))
        os.utime(place / name, ns=(when, when))


async def test_two_revisions_are_not_mixed(root: Path, tmp_path: Path) -> None:
    """Cut short while it gives up what is old, what it leaves is not taken for the new."""
    place, fault = tmp_path / "shared", Fault()
    place.mkdir()
    write(place, "old", 1_000_000_000)
    options = replace(STILL, trust=Trust(import_roots=(str(place),)))
    terms = FetchTerms((f"file://{place}",), wait=PATIENCE)
    async with running(root, 20 * BLOCK, options=options, reach=fault) as node:
        fault.arm("ingest.file-flushed", len(NAMES))
        with pytest.raises(IoError):
            await node.cache.fetch(KEY, terms)
        assert node.usage.parked
        write(place, "new", 2_000_000_000)
        fault.arm("part.forgotten", 2)
        with pytest.raises(IoError):
            await node.cache.fetch(KEY, terms)
        record = (await node.cache.fetch(KEY, terms)).record
        assert record is not None
        for name in NAMES:
            assert (record.path / name).read_bytes() == bytes_of(f"new {name}", 2 * BLOCK)
        await node.agree()


def listing(origin: Origin, name: str, body: bytes, *, stated: bool = True) -> str:
    """Serve one file and a listing of it; the source."""
    entry: dict[str, object] = {"path": "w", "bytes": len(body), "url": f"{name}-w"}
    if stated:
        entry["sha256"] = hashlib.sha256(body).hexdigest()
    origin.files[f"/{name}-w"] = body
    origin.files[f"/{name}.json"] = json.dumps({"files": [entry]}).encode()
    return f"{origin.url}/{name}.json"


class Once(dict[str, tuple[int, dict[str, str]]]):
    """Refuses the file of the first mirror, and that of the second once, which changes then."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin
        self._changed = False

    def get(self, path: str, default: object = None) -> object:  # type: ignore[override]
        if path == "/first-w":
            return 404, {}
        if path == "/second-w" and not self._changed:
            self._changed = True
            listing(self._origin, "second", bytes_of("evil", BLOCK), stated=False)
            return 412, {}
        return default


async def test_a_mirror_that_changes_is_held_to_the_first_listing_too(
    root: Path, origin: Origin
) -> None:
    good = bytes_of("good", BLOCK)
    sources = (listing(origin, "first", good), listing(origin, "second", good))
    origin.refusals = Once(origin)
    async with running(root, 20 * BLOCK) as node:
        with pytest.raises(DigestMismatch):
            await node.cache.fetch(KEY, FetchTerms(sources, wait=PATIENCE))
        assert node.resident() == []


async def test_what_takes_no_link_is_read(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Ingest, *_: object, **__: object) -> None:
        raise FileNotFoundError("Too many links")

    body = bytes_of("same", 2 * BLOCK)
    async with running(root, 20 * BLOCK) as node:
        await node.cache.fetch(KEY, FetchTerms((listing(origin, "one", body),), wait=PATIENCE))
        monkeypatch.setattr(Ingest, "link", refuse)
        other = FetchTerms((listing(origin, "two", body),), wait=PATIENCE)
        record = (await node.cache.fetch(Key("n"), other)).record
        assert record is not None
        assert (record.path / "w").read_bytes() == body
        assert node.usage.used == 4 * BLOCK


@pytest.fixture
def flowing(origin: Origin) -> Iterator[Origin]:
    origin.flowing.set()
    yield origin
    origin.flowing.set()


async def fetching(node: Node, origin: Origin, key: str, blocks: int, wait: float) -> None:
    source = origin.file(f"{key}.bin", bytes_of(key, blocks * BLOCK))
    await node.cache.fetch(Key(key), FetchTerms((source,), wait=wait))


async def test_those_that_wait_for_room_keep_nobody_out(root: Path, flowing: Origin) -> None:
    options = replace(STILL, fetch_concurrency=2)
    async with running(root, 10 * BLOCK, options=options) as node:
        await node.put("pinned", 6 * BLOCK)
        await node.cache.pin("replica", Key("pinned"))
        waiting = [
            asyncio.create_task(fetching(node, flowing, f"large-{number}", 6, 3600.0))
            for number in range(3)
        ]
        async with asyncio.timeout(PATIENCE):
            while [job.state for job in node.cache.fetching.views()].count("waiting") < 2:
                await asyncio.sleep(0)
        await soon(fetching(node, flowing, "small", 1, PATIENCE))
        assert "small" in node.resident()
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        for job in node.cache.fetching.views():
            await node.cache.fetching.cancel(job.id)


async def test_a_user_puts_nothing_in_the_place_of_what_is_from_elsewhere(
    root: Path, origin: Origin
) -> None:
    options = replace(STILL, trust=Trust(allowed=(origin.url,)))
    async with running(root, 10 * BLOCK, options=options) as node:
        await node.put("m", BLOCK)
        source = origin.file("m.bin", bytes_of("other", BLOCK))
        mine = FetchTerms((source,), revalidate=True, uid=1000, wait=PATIENCE)
        with pytest.raises(Forbidden, match="not from that source"):
            await node.cache.fetch(KEY, mine)
        await node.cache.fetch(KEY, replace(mine, uid=None))
        origin.file("m.bin", bytes_of("newer", BLOCK))
        record = (await node.cache.fetch(KEY, mine)).record
        assert record is not None
        assert (record.path / "m.bin").read_bytes() == bytes_of("newer", BLOCK)
