"""How much is remembered of fetches that have ended, and of those who asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.origin import PATIENCE, Origin, http_origin
from tests.cache.node import BLOCK, STILL, Node, running
from tests.polling import eventually
from weightd.cache import FetchTerms
from weightd.cache.fetching import job as jobs
from weightd.cache.fetching import shelf
from weightd.cache.fetching.job import Caller, Job
from weightd.errors import OriginFailed, TooMany
from weightd.model import Key
from weightd.origins import Trust


@pytest.fixture
def origin() -> Iterator[Origin]:
    with http_origin() as origin:
        yield origin


async def fail(node: Node, origin: Origin, key: str, uid: int | None = None) -> None:
    """Fetch what the origin has not, until the end of that is written down."""
    terms = FetchTerms((f"{origin.url}/none",), wait=PATIENCE, uid=uid)
    with pytest.raises(OriginFailed):
        await node.cache.fetch(Key(key), terms)
    await eventually(lambda: not node.cache.fetching.running)


def keys(node: Node) -> set[str]:
    return {str(job.key) for job in node.cache.fetching.views()}


async def written(node: Node) -> set[str]:
    """The keys of the fetches in the history."""
    database = node.cache.fetching._jobs._database
    return {str(one.key) for one in await asyncio.to_thread(database.fetches)}


async def test_the_oldest_of_too_many_ended_fetches_is_forgotten(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "ENDED_MAX", 4)
    monkeypatch.setattr(shelf, "FORGET_AT_ONCE", 3)
    async with running(root, 100 * BLOCK) as node:
        for count in range(6):
            await fail(node, origin, f"k{count}")
        assert keys(node) == {"k2", "k3", "k4", "k5"}
        assert len(await written(node)) == 6
        await fail(node, origin, "k6")
        assert await written(node) == keys(node) == {"k3", "k4", "k5", "k6"}
        await fail(node, origin, "k7")
        await node.cache.fetching.tidy()
        assert await written(node) == keys(node) == {"k4", "k5", "k6", "k7"}


async def test_a_start_remembers_no_more_of_them(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, 100 * BLOCK) as node:
        for count in range(6):
            await fail(node, origin, f"k{count}")
            node.clock.advance(1.0)
        monkeypatch.setattr(shelf, "ENDED_MAX", 4)
        await node.restart()
        assert await written(node) == keys(node) == {"k2", "k3", "k4", "k5"}


async def test_one_user_has_none_of_the_others_forgotten(
    root: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "ENDED_OF_ONE_USER_MAX", 2)
    options = replace(STILL, trust=Trust(allowed=(origin.url,)))
    async with running(root, 100 * BLOCK, options=options) as node:
        await fail(node, origin, "root")
        await fail(node, origin, "other", uid=1001)
        for count in range(4):
            await fail(node, origin, f"k{count}", uid=1000)
        assert keys(node) == {"root", "other", "k2", "k3"}


async def test_a_holder_who_asks_again_has_one_pin_as_of_the_last_time(
    root: Path, origin: Origin
) -> None:
    source = origin.file("m.bin", bytes(BLOCK))
    origin.flowing.clear()
    async with running(root, 100 * BLOCK) as node:
        for ttl in range(1, 10):
            await node.cache.fetch(Key("m"), FetchTerms((source,), holder="pod", ttl=float(ttl)))
            await node.cache.fetch(Key("m"), FetchTerms((source,)))
        job = node.cache.fetching._fetches.live(Key("m"))
        assert job is not None
        assert [one.terms.holder for one in job.callers] == ["pod", None]
        origin.flowing.set()
        await node.cache.fetch(Key("m"), FetchTerms((source,), wait=PATIENCE))
        (generation,) = node.cache.audit().generations()
        assert {name: pin.ttl for name, pin in generation.pins.items()} == {"pod": 9.0}


def test_a_caller_who_stays_is_kept_beside_the_same_holder() -> None:
    job = job_for("pod")
    for _ in range(3):
        job.join(Caller(FetchTerms(("s",), holder="pod", uid=7), until=0.0, here=False))
    job.join(Caller(FetchTerms(("s",), holder="pod"), until=0.0))
    assert [(one.here, one.terms.uid) for one in job.callers] == [
        (True, None),
        (False, 7),
        (True, None),
    ]


def test_one_user_names_so_many_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "HOLDERS_MAX", 2)
    job = job_for("a")
    job.join(Caller(FetchTerms(("s",), holder="b"), until=0.0, here=False))
    job.join(Caller(FetchTerms(("s",), holder="b"), until=0.0, here=False))
    with pytest.raises(TooMany, match="holders"):
        job.join(Caller(FetchTerms(("s",), holder="c"), until=0.0))
    job.join(Caller(FetchTerms(("s",), holder="c", uid=7), until=0.0))
    job.join(Caller(FetchTerms(("s",)), until=0.0))
    assert job.holders == {"a", "b", "c"}
    assert len(job.callers) == 4


def job_for(holder: str) -> Job:
    """A job with one caller, who stays."""
    job = Job(Key("m"), ("https://o/m",), None, None, created_at=0.0, order=0, asked_at=0.0)
    job.join(Caller(FetchTerms(job.sources, holder=holder), until=0.0))
    return job


async def test_nothing_stays_of_a_fetch_that_brought_nothing(root: Path, origin: Origin) -> None:
    source = origin.listing("m", a=b"", b=bytes(BLOCK))
    origin.refusals["/b"] = 404, {}
    async with running(root, 100 * BLOCK) as node:
        with pytest.raises(OriginFailed):
            await node.cache.fetch(Key("m"), FetchTerms((source,), wait=PATIENCE))
        await node.agree()
        assert node.usage.parked == 0
        assert list((root / "incoming").iterdir()) == []
