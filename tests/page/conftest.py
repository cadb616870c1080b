from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from tests.page.browser import launched
from tests.system.daemon import Daemon, running

CAPACITY = 4_000_000


@pytest.fixture(scope="session")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    """One for all tests of a process; each test has a context of its own."""
    async with async_playwright() as playwright:
        browser = await launched(playwright)
        yield browser
        await browser.close()


@pytest.fixture
def daemon(root: Path) -> Iterator[Daemon]:
    with running(root, capacity=CAPACITY, options=["--listen", "127.0.0.1:0"]) as daemon:
        yield daemon
