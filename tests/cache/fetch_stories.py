"""What a cache is asked to fetch, one thing at a time, from a real origin over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from tests.api.origin import PATIENCE, Origin
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node
from tests.store.support import begun
from weightd.cache import FetchOutcome, FetchTerms
from weightd.cache.fetching.job import Job
from weightd.cache.fetching.stored import encode_note
from weightd.cache.tasks import completed
from weightd.model import Key
from weightd.origins import open_origin, parse_reference
from weightd.origins.contract import Patience, Trust
from weightd.store import Parked, Store

KEY: Final = Key("org/model")
OTHER: Final = Key("org/other")

FIRST: Final = {
    "config.json": bytes_of("config", 100),
    "shard-1": bytes_of("shard-1", 2 * BLOCK),
    "shard-2": bytes_of("shard-2", BLOCK),
}
NEXT: Final = FIRST | {"shard-2": bytes_of("another shard-2", BLOCK)}
"""The same but for one file."""


def source_of(origin: Origin, files: Mapping[str, bytes], name: str = "model") -> str:
    """Serve files with a listing that tells their content; the source to fetch them by."""
    told = [
        {"path": path, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        for path, body in files.items()
    ]
    origin.files |= {f"/{path}": body for path, body in files.items()}
    origin.files[f"/{name}.json"] = json.dumps({"files": told}).encode()
    return f"{origin.url}/{name}.json"


async def fetch_of(
    node: Node, files: Mapping[str, bytes] = FIRST, key: Key = KEY, **terms: Any
) -> FetchOutcome:
    """Fetch ``files`` as a model, and stay until it is here."""
    source = source_of(node.origin, files)
    wait = terms.pop("wait", PATIENCE)
    return await node.cache.fetch(key, FetchTerms((source,), wait=wait, **terms))


# -- What has to be there before ----------------------------------------------------


async def a_fetched_model(node: Node) -> None:
    await fetch_of(node)
    node.clock.advance(60.0)  # so that a lookup looks at the files


async def a_fetched_and_pinned_model(node: Node) -> None:
    await fetch_of(node, holder="replica", forever=True)


async def a_partial(node: Node) -> None:
    """Half of one file, all of another, of what an earlier fetch was bringing."""
    source = source_of(node.origin, FIRST)
    begun = {"config.json": 100, "shard-1": BLOCK}
    stored = await asyncio.to_thread(leave_part_of, node.store, source, FIRST, begun)
    node.cache._context.partials.load(stored)
    assert node.usage.parked == 2 * BLOCK


def leave_part_of(
    store: Store,
    source: str,
    files: Mapping[str, bytes],
    sizes: Mapping[str, int],
    key: Key = KEY,
) -> Parked:
    """Park an arrival that has of ``files`` so many bytes each, as a fetch would half way."""
    origin = open_origin(parse_reference(source), trust=Trust(), patience=Patience())
    listing = origin.list()
    origin.close()
    job = Job(key, (source,), None, None, created_at=0.0, order=0, asked_at=0.0)
    ingest = begun(store, key)
    ingest.note(encode_note(job, listing))
    for path, size in sizes.items():
        body = files[path]
        part = ingest.part(path, len(body), claim=lambda size: None, wrote=lambda size: None)
        part.write(0, memoryview(body)[:size])
    return ingest.park()


# -- The stories --------------------------------------------------------------------


async def fetch(node: Node) -> object:
    return await fetch_of(node)


async def fetch_for_a_holder(node: Node) -> object:
    return await fetch_of(node, holder="replica-2", ttl=3600.0)


async def fetch_the_next(node: Node) -> object:
    return await fetch_of(node, NEXT, revalidate=True)


async def fetch_another_that_shares(node: Node) -> object:
    return await fetch_of(node, NEXT, OTHER)


async def revalidate(node: Node) -> object:
    return await fetch_of(node, revalidate=True)


async def fetch_together(node: Node) -> object:
    """Two ask for the same, and one of them goes away when the story is cut short."""
    staying = asyncio.ensure_future(fetch_of(node, holder="staying", forever=True))
    try:
        return await fetch_of(node, holder="leaving", forever=True)
    finally:
        await completed(staying)


async def cancel(node: Node) -> object:
    """A job that is held at its origin is begun, and then deleted."""
    node.origin.flowing.clear()
    try:
        await fetch_of(node, wait=0.0)
        (job,) = node.cache.fetching.views()
        await node.cache.fetching.cancel(job.id)
    finally:
        node.origin.flowing.set()
    return None
