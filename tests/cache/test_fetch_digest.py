"""``digest`` is the content that a caller insists on, also where the origin tells no sha256."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.api.origin import PATIENCE, Origin
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node, running
from weightd.cache import FetchTerms
from weightd.errors import DigestMismatch, NotResident
from weightd.model import FileEntry, Key, content_digest, parse_sha256

KEY = Key("m")
OTHER = parse_sha256("a" * 64)


def digest_of(seed: str) -> str:
    body = bytes_of(seed, BLOCK)
    return content_digest([FileEntry("m.bin", BLOCK, hashlib.sha256(body).hexdigest())])


def source(origin: Origin, seed: str) -> str:
    """One file, of which the server states no sha256."""
    return origin.file("m.bin", bytes_of(seed, BLOCK))


async def refused(node: Node, terms: FetchTerms) -> DigestMismatch:
    with pytest.raises(DigestMismatch) as caught:
        await node.cache.fetch(KEY, terms)
    return caught.value


async def test_other_content_is_not_published(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        where = source(origin, "new")
        terms = FetchTerms((where,), digest=OTHER, holder="replica", wait=PATIENCE)
        error = await refused(node, terms)
        assert (error.expected, error.actual) == (OTHER, digest_of("new"))
        with pytest.raises(NotResident):
            await node.cache.get(KEY)
        assert node.cache.pins() == []
        await node.agree()
        # Nothing is kept that might be what is wrong.
        assert node.usage.used == 0
        (job,) = node.cache.fetching.views()
        assert job.state == "failed"
        # Whoever asks for what there is has it at once: the failure was of the other wish.
        right = FetchTerms((where,), digest=digest_of("new"), wait=PATIENCE)
        assert (await node.cache.fetch(KEY, right)).record is not None


async def test_what_is_here_stays_when_the_origin_has_other_content(
    root: Path, origin: Origin
) -> None:
    async with running(root, 10 * BLOCK) as node:
        await node.cache.fetch(KEY, FetchTerms((source(origin, "old"),), wait=PATIENCE))
        terms = FetchTerms(
            (source(origin, "new"),), digest=digest_of("old"), revalidate=True, wait=PATIENCE
        )
        await refused(node, terms)
        assert (await node.cache.get(KEY)).manifest.digest == digest_of("old")


async def test_the_next_mirror_may_have_it(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        sources = (source(origin, "wrong"), origin.file("other/m.bin", bytes_of("right", BLOCK)))
        terms = FetchTerms(sources, digest=digest_of("right"), wait=PATIENCE)
        outcome = await node.cache.fetch(KEY, terms)
        assert outcome.record is not None
        assert outcome.record.manifest.digest == digest_of("right")


async def test_who_joins_with_another_wish_is_not_pinned(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        where = source(origin, "new")
        origin.flowing.clear()
        await node.cache.fetch(KEY, FetchTerms((where,)))
        origin.flowing.set()
        await refused(node, FetchTerms((where,), digest=OTHER, holder="replica", wait=PATIENCE))
        assert node.cache.pins() == []
        assert node.resident() == ["m"]


async def test_a_lasting_pin_is_not_made_a_lease(root: Path, origin: Origin) -> None:
    async with running(root, 10 * BLOCK) as node:
        where = source(origin, "new")
        first = FetchTerms((where,), holder="replica", wait=PATIENCE)
        await node.cache.fetch(KEY, first)
        assert [pin.ttl for pin in node.cache.pins()] == [node.options.fetch_ttl]
        await node.cache.pin("replica", KEY, forever=True)
        await node.cache.fetch(KEY, first)
        assert [(pin.ttl, pin.forever) for pin in node.cache.pins()] == [(None, True)]
        named = FetchTerms((where,), holder="replica", ttl=50.0, wait=PATIENCE)
        await node.cache.fetch(KEY, named)
        assert [(pin.ttl, pin.forever) for pin in node.cache.pins()] == [(50.0, False)]
