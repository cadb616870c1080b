"""A listing whose files are at signed addresses: read by them, and they are kept nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.api.origin import PATIENCE, Origin, http_origin
from tests.cache.node import BLOCK, running
from tests.polling import until
from weightd.cache import FetchTerms
from weightd.errors import OriginFailed
from weightd.model import Key

KEY = Key("m")
SECRET = "hush-hush-hush"


def signed(origin: Origin, **files: bytes) -> str:
    """Serve files and a listing that names them by signed addresses; its own address."""
    told = []
    for path, body in files.items():
        url = origin.file(path, body)
        told.append({"path": path, "bytes": len(body), "url": f"{url}?X-Amz-Signature={SECRET}"})
    return origin.file("m.json", json.dumps({"files": told}).encode())


def names_without_the_secret(root: Path) -> set[str]:
    """The names of all files below ``root``, in none of which the secret is."""
    files = [file for file in root.rglob("*") if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    return {file.name for file in files}


async def test_what_is_left_of_it_is_gone_on_with_by_new_ones(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with http_origin() as origin:
        source = signed(origin, a=bytes(BLOCK), b=bytes(2 * BLOCK))
        origin.flowing.clear()
        async with running(root, 100 * BLOCK) as node:
            await node.cache.fetch(KEY, FetchTerms((source,)))
            await asyncio.to_thread(until, lambda: origin.bodies("a"))
            assert ".arrival.json" in names_without_the_secret(root)
            node.cache.drain()
            origin.flowing.set()
            await node.close()
            names_without_the_secret(root)
            await node.open()
            outcome = await node.cache.fetch(KEY, FetchTerms((source,), wait=PATIENCE))
            assert outcome.record is not None
            assert SECRET not in repr(outcome.record)
    assert SECRET not in caplog.text


async def test_one_that_is_refused_is_not_shown(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with http_origin() as origin:
        source = signed(origin, a=bytes(BLOCK))
        origin.refusals["/a"] = (403, {})
        async with running(root, 100 * BLOCK) as node:
            with pytest.raises(OriginFailed) as refused:
                await node.cache.fetch(KEY, FetchTerms((source,), wait=PATIENCE))
            assert SECRET not in str(refused.value)
            (job,) = node.cache.fetching.views()
            assert SECRET not in repr(job)
    assert SECRET not in caplog.text
