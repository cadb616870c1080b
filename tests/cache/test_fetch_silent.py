"""A fetch from an origin that says nothing ends as soon as somebody wants it to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import PATIENCE
from tests.cache.node import BLOCK, STILL, running
from tests.origins.servers.liar import Liar, Request, head, running_liar
from weightd.cache import FetchTerms
from weightd.model import Key
from weightd.origins.contract import Patience

ENDLESS = replace(STILL, patience=Patience(connect=3600.0, progress=3600.0))
KEY = Key.parse("m")
LISTING = json.dumps({"files": [{"path": "w", "bytes": 8 * BLOCK}]}).encode()


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server


@pytest.mark.parametrize("asked", ["/m.json", "/w"])
@pytest.mark.parametrize("how", ["deleted", "drained"])
async def test_before_its_head(root: Path, liar: Liar, how: str, asked: str) -> None:
    silent = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(request: Request, peer: socket.socket) -> bool:
        if request.path == asked:
            loop.call_soon_threadsafe(silent.set)
            liar.stall()
            return False
        peer.sendall(head(200, length=len(LISTING)) + LISTING)
        return True

    liar.answer = answer
    async with running(root, 100 * BLOCK, options=ENDLESS) as node:
        terms = FetchTerms((f"{liar.url}/m.json",))
        outcome = await node.cache.fetch(KEY, terms)
        assert outcome.job is not None
        async with asyncio.timeout(PATIENCE):
            await silent.wait()
            if how == "drained":
                # It goes on after the start, and is silent again.
                await node.restart()
            await node.cache.fetching.cancel(outcome.job.id)
            assert node.cache.fetching.view(outcome.job.id).state == "cancelled"
            assert not liar.over.is_set()
