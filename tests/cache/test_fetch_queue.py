"""How many fetches may wait their turn, and how many of them one user may have begun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.cache.node import BLOCK, STILL, running
from weightd.cache import FetchTerms
from weightd.errors import TooMany
from weightd.model import Key
from weightd.origins import Trust


async def test_one_user_leaves_room_for_the_others(root: Path) -> None:
    with http_origin() as origin:
        source = origin.file("m.bin", bytes(BLOCK))
        origin.flowing.clear()
        trust = Trust(allowed=(origin.url,))
        options = replace(STILL, fetches_queued=4, fetches_per_uid=2, trust=trust)
        async with running(root, 100 * BLOCK, options=options) as node:
            mine, other = FetchTerms((source,), uid=1000), FetchTerms((source,), uid=1001)
            for key in ("a", "b"):
                await node.cache.fetch(Key(key), mine)
            with pytest.raises(TooMany, match="one user"):
                await node.cache.fetch(Key("c"), mine)
            # Joining costs nobody a place.
            await node.cache.fetch(Key("a"), mine)
            await node.cache.fetch(Key("c"), other)
            await node.cache.fetch(Key("d"), FetchTerms((source,)))
            with pytest.raises(TooMany, match="waiting their turn"):
                await node.cache.fetch(Key("e"), other)
            origin.flowing.set()
