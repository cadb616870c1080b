from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import Served, serving


@pytest.fixture
async def served(root: Path) -> AsyncIterator[Served]:
    """The admin door over a cache with a budget of `BUDGET` bytes."""
    async with serving(root) as served:
        yield served
