"""The page while things happen: arrivals, a daemon that dies, names that mean harm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.page.browser import looking
from tests.page.conftest import CAPACITY
from tests.system.daemon import Daemon, running

pytestmark = pytest.mark.needs("chromium", "playwright", "axe")


@contextmanager
def arriving(daemon: Daemon, key: str, size: int) -> Iterator[threading.Event]:
    """A put that stops half way until the event, and is whole at the end."""
    goes_on = threading.Event()

    def body() -> Iterator[bytes]:
        yield b"x" * (size // 2)
        goes_on.wait(60)
        yield b"x" * (size - size // 2)

    length = {"Content-Length": str(size)}
    thread = threading.Thread(
        target=daemon.client.call, args=("PUT", f"/v1/models/{key}", body(), length)
    )
    thread.start()
    try:
        yield goes_on
    finally:
        goes_on.set()
        thread.join()


async def test_an_arrival_moves_and_becomes_a_model(daemon: Daemon, browser: Browser) -> None:
    async with looking(browser, daemon) as look:
        page = look.page
        await expect(page.locator("#arrivals-none")).to_be_visible()
        with arriving(daemon, "org/m", 1_000_000) as goes_on:
            arrival = page.locator("#arrivals li")
            await expect(arrival).to_contain_text("org/m")
            await expect(arrival.locator(".percent")).to_have_text("50%")
            await expect(arrival).to_contain_text("500\u00a0kB of 1\u00a0MB")
            assert await arrival.locator("progress").evaluate("one => one.value") == 500_000
            goes_on.set()
            await expect(page.locator("#table tbody th .key")).to_have_text("org/m")
            await expect(arrival).to_have_count(0)


async def test_a_daemon_that_dies_is_said_at_once_and_its_next_run_is_found(
    root: Path, browser: Browser
) -> None:
    options = ["--listen", "127.0.0.1:0"]
    with running(root, capacity=CAPACITY, options=options) as daemon:
        port = daemon.port()
        assert daemon.client.call("PUT", "/v1/models/org/m", b"weights").status == 201
        async with looking(browser, daemon) as look:
            page = look.page
            await expect(page.locator("#table tbody tr")).to_have_count(1)
            await page.set_viewport_size({"width": 640, "height": 400})
            await page.get_by_label("Filter").scroll_into_view_if_needed()
            daemon.kill()
            await expect(page.locator("#lost-text")).to_be_in_viewport()
            await expect(page.locator("#lost-text")).to_contain_text("has not answered since")
            state = page.get_by_role("status")
            await expect(state).to_contain_text("no answer: weightd has not answered since")
            await expect(page).to_have_title(re.compile("^No answer: "))
            await expect(page.locator("#table tbody tr")).to_have_count(1)
            assert await look.violations() == []
            again = ["--listen", f"127.0.0.1:{port}"]
            with running(root, capacity=CAPACITY, options=again) as successor:
                assert successor.client.call("PUT", "/v1/models/org/n", b"weights").status == 201
                await expect(page.locator("#table tbody tr")).to_have_count(2)
                await expect(page.locator("#lost")).to_be_hidden()
                await expect(state).to_have_text("ready")


async def test_a_daemon_that_answers_with_an_error_is_quoted(
    daemon: Daemon, browser: Browser
) -> None:
    detail = "statvfs of the root failed: Input/output error"

    async def fails(route: Route) -> None:
        await route.fulfill(status=500, json={"code": "io-error", "detail": detail})

    async with looking(browser, daemon) as look:
        await look.page.route("**/?limit=*", fails)
        await expect(look.page.locator("#lost-text")).to_contain_text(detail)
        await look.page.unroute_all()
        await expect(look.page.locator("#lost-text")).to_be_hidden()
        look.complaints = [one for one in look.complaints if "status of 500" not in one]


HOSTILE = "<img src=x onerror=alert(1)>\u202egpj"
SHOWN = "<img src=x onerror=alert(1)>\\u202egpj"


async def test_names_that_mean_harm_are_text(root: Path, browser: Browser, tmp_path: Path) -> None:
    """Foreign files, processes and sources may be called anything."""
    (root / HOSTILE).mkdir(parents=True)
    program = tmp_path / "<b>x\u202e<i>"
    shutil.copy("/bin/sleep", program)
    with running(root, capacity=CAPACITY, options=["--listen", "127.0.0.1:0"]) as daemon:
        call = daemon.client.call
        assert call("PUT", "/v1/models/org/m", b"weights").status == 201
        asked = {"key": "org/f", "source": "http://127.0.0.1:9/<u>bold</u>"}
        fetch = json.dumps(asked).encode()
        json_type = {"Content-Type": "application/json"}
        assert call("POST", "/v1/fetch?wait=30", fetch, json_type).status == 502
        path = daemon.client.get("/v1/models/org/m")["path"]
        with holding(path, program):
            async with looking(browser, daemon) as look:
                page = look.page
                await expect(page.locator("#notes")).to_contain_text(SHOWN)
                await expect(page.locator("#table .kept")).to_contain_text("<b>x\\u202e<i>")
                await expect(page.locator("#refusals")).to_contain_text("127.0.0.1:9")
                assert await page.locator("main :is(img, b, u, i, script)").count() == 0
                assert "\u202e" not in await page.content()


@contextmanager
def holding(path: str, program: Path) -> Iterator[None]:
    """A process of that name holds a model."""
    process = subprocess.Popen(["flock", "--shared", "--no-fork", path, str(program), "60"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_every_control_is_reached_by_the_tab_key_and_seen(
    daemon: Daemon, browser: Browser
) -> None:
    for key in ("org/a", "org/b"):
        assert daemon.client.call("PUT", f"/v1/models/{key}", b"weights").status == 201
    for holder in ("h1", "h2"):
        assert daemon.client.call("PUT", f"/v1/pins/{holder}/org/a").status == 201
    async with looking(browser, daemon) as look:
        page = look.page
        await expect(page.locator("#table tbody tr")).to_have_count(2)
        await page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the models")
        await expect(skip).to_be_focused()
        await expect(skip).to_be_in_viewport()
        reached = []
        for _ in range(8):
            await page.keyboard.press("Tab")
            focused = page.locator(":focus-visible")
            assert await focused.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
            reached.append(await focused.evaluate("one => one.id || one.textContent"))
        heads = ["Model", "Size", "Age", "Idle", "Hits", "Kept by"]
        assert reached == ["filter", *heads, "and 1 more"]
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("h2", exact=True)).to_be_visible()
        await skip.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#models")).to_be_focused()


async def test_it_asks_for_nothing_while_nobody_sees_it(daemon: Daemon, browser: Browser) -> None:
    async with looking(browser, daemon) as look:
        await _turn(look.page, hidden=True)
        await look.page.wait_for_load_state("networkidle")
        before = look.asked
        await look.page.wait_for_timeout(3000)  # one look and a half, which must not come
        assert look.asked == before
        assert daemon.client.call("PUT", "/v1/models/org/m", b"weights").status == 201
        await _turn(look.page, hidden=False)
        await expect(look.page.locator("#table tbody tr")).to_have_count(1)


async def _turn(page: Page, *, hidden: bool) -> None:
    """Have the page be told that it is seen, or is not."""
    await page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


async def test_a_browser_on_the_network_asks_for_the_token(
    root: Path, browser: Browser, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple")
    token.chmod(0o600)
    options = ["--listen", "0.0.0.0:0", "--token-file", str(token)]
    with running(root, capacity=CAPACITY, options=options) as daemon:
        shown = {"username": "anybody", "password": token.read_text()}
        async with looking(browser, daemon, http_credentials=shown) as look:
            assert daemon.client.call("PUT", "/v1/models/org/m", b"weights").status == 201
            await expect(look.page.locator("#table tbody tr")).to_have_count(1)
            # Chromium asks without it first, as a person's does.
            look.complaints = [one for one in look.complaints if "status of 401" not in one]
