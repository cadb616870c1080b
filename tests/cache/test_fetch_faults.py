"""What nobody foresaw ends a fetch; a history that cannot be written does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.cache.node import BLOCK, running
from weightd.cache import FetchTerms
from weightd.errors import IoError
from weightd.model import Key


async def test_a_bug_ends_the_fetch_and_is_logged(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with http_origin() as origin:
        terms = FetchTerms((origin.file("m.bin", bytes(BLOCK)),), wait=30.0)
        async with running(root, 100 * BLOCK) as node:
            node.workers.fail_call("list", RuntimeError("nobody foresaw it"))
            with pytest.raises(IoError, match="log has the traceback"):
                await node.cache.fetch(Key.parse("m"), terms)
            (job,) = node.cache.fetching.views()
            assert (job.state, job.retry_at) == ("failed", None)
            assert "nobody foresaw it" in caplog.text
            assert (node.usage.used, node.usage.reserved) == (0, 0)
            assert (await node.cache.fetch(Key.parse("m"), terms)).record is not None


async def test_a_history_that_is_not_writable_does_not_stop_a_fetch(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with http_origin() as origin:
        terms = FetchTerms((origin.file("m.bin", bytes(BLOCK)),), wait=30.0)
        async with running(root, 100 * BLOCK) as node:
            node.workers.fail_call("put_fetch", IoError("write history.db", "disk full"))
            assert (await node.cache.fetch(Key.parse("m"), terms)).record is not None
            assert "is not written down" in caplog.text
