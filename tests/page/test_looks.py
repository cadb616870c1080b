"""What the page shows, in a browser, of a real daemon: nothing, one model, five hundred."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.page.browser import looking
from tests.page.conftest import CAPACITY
from tests.system.daemon import Client, Daemon, running
from tests.system.models import single
from tests.system.roots import open_store, publish

pytestmark = pytest.mark.needs("chromium", "playwright", "axe")

MANY = 500


def put(client: Client, key: str, size: int) -> None:
    assert client.call("PUT", f"/v1/models/{key}", key.encode() * (size // len(key))).status == 201


def upload(client: Client, key: str, size: int) -> int:
    """Ask for room; the status of the answer."""
    asked = json.dumps({"key": key, "files": [{"path": "w", "bytes": size}]}).encode()
    return client.call("POST", "/v1/uploads", asked, {"Content-Type": "application/json"}).status


def fill(client: Client) -> None:
    """A little of everything."""
    for key, size in (("org/a", 900_000), ("org/b@v1", 600_000), ("org/c", 300_000)):
        put(client, key, size)
    for holder in ("replica-1:7", "replica-2:9"):
        assert client.call("PUT", f"/v1/pins/{holder}/org/a?ttl=900").status == 201
    put(client, "org/a", 200_000)
    client.get("/v1/models/org/b@v1")
    client.call("GET", "/v1/models/absent")
    assert upload(client, "org/arriving", 100_000) == 201
    assert upload(client, "org/blocked", CAPACITY - 100_000) == 503
    assert upload(client, "org/huge", CAPACITY + 1) == 413
    client.call("DELETE", "/v1/models/org/c")


async def test_a_node_without_a_model_says_how_to_put_one(daemon: Daemon, browser: Browser) -> None:
    async with looking(browser, daemon) as look:
        empty = look.page.locator("#empty")
        await expect(empty).to_contain_text("No model is here yet")
        await expect(empty).to_contain_text(f"--unix-socket {daemon.socket} ")
        await expect(look.page.locator("#table")).to_be_hidden()
        await expect(look.page.locator("#hit-rate")).to_have_text("\u2013")
        assert await look.violations() == []
        put(daemon.client, "org/first", 10_000)
        await expect(look.page.locator("#table tbody th .key")).to_have_text("org/first")
        await expect(empty).to_be_hidden()


async def test_everything_is_said_in_words_and_for_everybody(
    daemon: Daemon, browser: Browser
) -> None:
    fill(daemon.client)
    async with looking(browser, daemon) as look:
        page = look.page
        await expect(page).to_have_title(r"weightd · " + (await page.locator("#node").inner_text()))
        await expect(page.locator("#hit-rate")).to_have_text("75%")
        bar = page.get_by_role("img", name="Budget of 4 MB")
        for words in ("retired", "evictable", "free", "promised"):
            await expect(bar).to_have_accessible_name(re_of(words))
            await expect(page.locator("#legend")).to_contain_text(words)
        await expect(page.get_by_role("progressbar", name="upload of org/arriving")).to_be_visible()
        refusals = page.locator("#refusals li")
        await expect(refusals).to_have_count(2)
        await expect(refusals.nth(0)).to_contain_text("too large")
        await expect(refusals.nth(0)).to_contain_text("Raise the capacity")
        await expect(refusals.nth(1)).to_contain_text("Held by replica-1:7 (org/a)")
        evicted = page.locator("#evictions li")
        await expect(evicted).to_contain_text("org/c")
        await expect(evicted).to_contain_text("removed by hand")
        retired = page.locator("#table tbody tr").filter(has=page.locator(".replaced:visible"))
        await expect(retired).to_contain_text("replica-1:7")
        await retired.get_by_text("and 1 more").click()
        await expect(retired.get_by_text("replica-2:9")).to_be_visible()
        assert await look.violations() == []


def re_of(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words))


async def test_a_budget_that_is_passed_is_said_first(root: Path, browser: Browser) -> None:
    options = ["--listen", "127.0.0.1:0"]
    with running(root, capacity=CAPACITY, options=options) as daemon:
        put(daemon.client, "org/a", 1_000_000)
        daemon.client.call("PUT", "/v1/pins/h/org/a")
    with running(root, capacity=500_000, options=options) as daemon:
        async with looking(browser, daemon) as look:
            note = look.page.locator("#notes li").first
            await expect(note).to_contain_text("over the budget")
            await expect(note).to_contain_text("raise capacity")
            await expect(look.page.locator("#bar .limit")).to_be_visible()
            await expect(look.page).to_have_title(re_of("Attention: "))
            assert await look.violations() == []


@pytest.fixture
def crowded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon with many models; no power is cut here, so they were made without flushing."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        store = open_store(root)
        for number in range(MANY):
            key = f"org-{number % 7}/m{number:03}"
            publish(store, key, single(key, 1 + number * 7 % MANY * 64), number + 1)
        store.close()
    options = ["--listen", "127.0.0.1:0"]
    with running(root, capacity=MANY * MANY * 4096, options=options) as daemon:
        yield daemon


async def test_five_hundred_models_are_sorted_and_filtered_and_stay_where_they_are(
    crowded: Daemon, browser: Browser
) -> None:
    daemon = crowded
    async with looking(browser, daemon) as look:
        page, rows = look.page, look.page.locator("#table tbody tr")
        heads = page.locator("#table thead th")
        await expect(rows).to_have_count(MANY)
        await expect(page.locator("#shown")).to_have_text(re_of("500"))
        # By the keyboard: the head's buttons, and what they say of themselves.
        size = heads.filter(has_text="Size")
        await size.get_by_role("button").focus()
        await page.keyboard.press("Enter")
        await expect(size).to_have_attribute("aria-sort", "descending")
        largest = max(range(MANY), key=lambda number: number * 7 % MANY)
        await expect(rows.first).to_contain_text(f"m{largest:03}")
        await page.keyboard.press("Space")
        await expect(size).to_have_attribute("aria-sort", "ascending")
        await expect(rows.first).to_contain_text("m000")
        idle = heads.filter(has_text="Idle").get_by_role("button")
        await idle.click()
        await expect(rows.first).to_contain_text("m000")
        await idle.click()
        await expect(rows.first).to_contain_text("m499")
        # What is looked at stays, while others are used and go before it.
        await page.locator("#table tbody th .key", has_text="m250").select_text()
        button = heads.filter(has_text="Hits").get_by_role("button")
        await button.focus()
        looked_at = page.locator("#table tbody th .key", has_text="m250")
        await looked_at.scroll_into_view_if_needed()
        before = await looked_at.bounding_box()
        daemon.client.get("/v1/models/org-0/m007")
        await expect(rows.first).to_contain_text("m007")
        assert await page.evaluate("getSelection().toString()") == "org-5/m250"
        assert await looked_at.bounding_box() == before
        await expect(button).to_be_focused()
        await page.get_by_label("Filter").fill("ORG-3/")
        await expect(rows).to_have_count(sum(number % 7 == 3 for number in range(MANY)))
        await page.get_by_label("Filter").fill("nowhere")
        await expect(page.locator("#nothing")).to_be_visible()
        await page.get_by_label("Filter").fill("")
        await expect(rows).to_have_count(MANY)
        await look.turn("phone")
