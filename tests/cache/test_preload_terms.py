"""Preloads that insist on content, or name a credential: other content is not what is wished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.api.origin import Origin
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, STILL, Node, running
from tests.cache.test_preload import A, asked_for, states, tidied, until_asked, wish, wished
from weightd.cache import Wish
from weightd.cache.fetching.preload import HOLDER
from weightd.errors import DigestMismatch, FetchCancelled
from weightd.model import Digest
from weightd.origins import Trust
from weightd.origins.contract import CredentialFile


def current(node: Node) -> Digest:
    generation = node.cache._context.ledger.current(A)
    assert generation is not None
    return generation.id.digest


async def digests(root: Path, origin: Origin) -> tuple[Wish, Wish]:
    """Two wishes for one key, each from its own origin and insisting on what that serves."""
    found = []
    async with running(root / "elsewhere", 10 * BLOCK) as node:
        for body in ("first", "second"):
            source = origin.file(f"{body}/a.bin", bytes_of(body, 4 * BLOCK))
            await wished(node, [Wish(A, (source,), "forever")])
            found.append(Wish(A, (source,), "forever", digest=current(node)))
            await wished(node, [])
            await node.cache.delete(A)
    origin.asked.clear()
    return found[0], found[1]


async def test_other_content_is_replaced_and_its_pin_given_up(root: Path, origin: Origin) -> None:
    first, second = await digests(root, origin)
    async with running(root / "here", 10 * BLOCK) as node:
        for one in (first, second, first):
            await wished(node, [one])
            await tidied(node)
            await node.quiet()
            (pin,) = node.cache.pins()
            assert (pin.holder, pin.generation.digest) == (HOLDER, one.digest)
            assert current(node) == one.digest
            assert node.usage.used == 4 * BLOCK


async def test_it_has_room_where_both_do_not_fit(root: Path, origin: Origin) -> None:
    first, second = await digests(root, origin)
    async with running(root / "here", 6 * BLOCK) as node:
        await wished(node, [first])
        await wished(node, [second])
        assert current(node) == second.digest


async def test_what_the_origin_does_not_have_is_asked_for_once(root: Path, origin: Origin) -> None:
    first, second = await digests(root, origin)
    async with running(root / "here", 10 * BLOCK) as node:
        await wished(node, [first])
        origin.asked.clear()
        wrong = replace(first, digest=second.digest)
        await wished(node, [wrong])
        asked = len(origin.asked)
        assert asked > 0
        for _ in range(3):
            node.clock.advance(3600.0)
            await tidied(node)
        # So long that nobody remembers how it ended.
        assert node.cache.fetching.views() == []
        assert len(origin.asked) == asked
        # What is here meanwhile is used as before.
        assert current(node) == first.digest
        await wished(node, [wrong])
        assert isinstance(node.cache.fetching.views()[0].error, DigestMismatch)
        assert len(origin.asked) == 2 * asked


async def test_one_under_way_for_other_content_is_given_up(root: Path, origin: Origin) -> None:
    first, second = await digests(root, origin)
    async with running(root / "here", 10 * BLOCK) as node:
        origin.flowing.clear()
        await node.cache.fetching.wish([replace(second, digest=first.digest)])
        await until_asked(node, origin, "second/a")
        origin.flowing.set()
        await wished(node, [second])
        job, before = node.cache.fetching.views()
        assert isinstance(before.error, FetchCancelled)
        assert job.state == "done"
        assert current(node) == second.digest


async def test_its_credential_is_shown(root: Path, origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("token")
    secret = CredentialFile("c", str(tmp_path / "secret"), (f"{origin.url}/",))
    options = replace(STILL, trust=Trust(credentials=(secret,)))
    async with running(root, 10 * BLOCK, options=options) as node:
        await wished(node, [replace(wish(origin, A, 2), credential="c")])
        assert states(node) == {"a": "done"}
        assert asked_for(origin) == ["a"]
        assert set(origin.shown) == {"Bearer token"}
