"""Debian's Chromium, and what a test asks of the page in it.

The policy of the page allows no script of a string's, so a test waits by locators.
"""

from __future__ import annotations

import importlib.resources
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from playwright.async_api import Browser, BrowserContext, Page, Playwright, expect

from tests.polling import WITHIN
from tests.system.daemon import Daemon

QUIET: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
"""Without these it looks for hosts of its maker's."""

View = Literal["light", "dark", "phone"]

VIEWS: Final[dict[View, dict[str, Any]]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 320, "height": 640}},
}

REFUSED: Final = re.compile(r"Failed to load resource: net::ERR_CONNECTION_REFUSED")
"""What Chromium itself says of a daemon that is not there."""


async def launched(playwright: Playwright) -> Browser:
    # For what takes no time; but much else may run on the machine.
    expect.set_options(timeout=WITHIN * 1000)
    place = shutil.which("chromium")
    assert place is not None
    # Root, as CI is, may not have its sandbox.
    return await playwright.chromium.launch(
        executable_path=place, args=QUIET, chromium_sandbox=False
    )


@dataclass
class Look:
    """A page that is open, and what its browser complained of."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    asked: int = 0

    def watch(self) -> None:
        page = self.page
        page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asks(request.url))

    def _asks(self, url: str) -> None:
        self.asked += 1
        if not url.startswith((self.url, "data:")):
            self.elsewhere.append(url)

    async def turn(self, view: View) -> None:
        """Show it otherwise; it is never wider than its window."""
        await self.page.emulate_media(color_scheme=VIEWS[view]["color_scheme"])
        await self.page.set_viewport_size(VIEWS[view]["viewport"])
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await self.page.evaluate(width) == 0, view

    async def violations(self) -> list[str]:
        """What axe-core finds in every view, by rule and element."""
        package = importlib.resources.files("axe_playwright_python")
        await self.page.evaluate(package.joinpath("axe.min.js").read_text("utf-8"))
        found = []
        for view in VIEWS:
            await self.turn(view)
            told = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            assert len(told["passes"]) > 10
            found += [
                f"{view}: {one['id']}: {node['html'][:200]} ({node['failureSummary']})"
                for one in told["violations"]
                for node in one["nodes"]
            ]
        await self.turn("light")
        return found


@asynccontextmanager
async def looking(browser: Browser, daemon: Daemon, **more: Any) -> AsyncIterator[Look]:
    """The page of a daemon, shown, until the context is left: without complaint by then."""
    context: BrowserContext = await browser.new_context(**VIEWS["light"], **more)
    try:
        url = f"http://127.0.0.1:{daemon.port()}/"
        look = Look(await context.new_page(), url)
        look.watch()
        await look.page.goto(url)
        await look.page.locator("#state[data-state]").wait_for()
        yield look
        assert look.elsewhere == []
        assert [one for one in look.complaints if not REFUSED.search(one)] == []
        await look.turn("phone")
    finally:
        await context.close()
