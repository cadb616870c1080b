"""`GET /`: the page and its figures, as they are sent; tests/page has it in a browser."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import BUDGET, Served, answering, content, problem, serving
from tests.polling import eventually
from tests.system.nursery import HERE
from weightd.api import Desk
from weightd.api.page.sheet import read_document
from weightd.cache import WeightCache
from weightd.cache.journal import RECENT
from weightd.cache.overview import KEEPERS_SHOWN, REFUSALS_SHOWN
from weightd.cache.refusals import REFUSALS_KEPT
from weightd.errors import StateUnwritable
from weightd.store import PinDatabase, Store
from weightd.wire.page import PageShape

AS_JSON = {"Accept": "application/json"}


async def seen(served: Served, **query: str | int) -> Any:
    """What the page is told, which has the shape that is described."""
    answer = await served.client.get("/", headers=AS_JSON, params=query)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert PageShape.model_validate(told).model_dump(mode="json").keys() == told.keys()
    return told


async def until(served: Served, whether: Callable[[Any], bool]) -> Any:
    """Ask until it is told."""

    async def told() -> Any:
        told = await seen(served)
        return told if whether(told) else None

    return await eventually(told)


# -- The document --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (None, True),
        ("*/*", True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html, application/json", True),
        ("application/json", False),
        ("application/json, text/html;q=0.5", False),
        ("application/json;q=0.1, text/html", True),
    ],
)
async def test_a_browser_gets_the_page_and_who_asks_for_json_its_figures(
    served: Served, accept: str | None, html: bool
) -> None:
    served.client.headers.pop("accept")
    answer = await served.client.get("/", headers={} if accept is None else {"Accept": accept})
    assert answer.status_code == 200
    kind = "text/html; charset=utf-8" if html else "application/json"
    assert answer.headers["content-type"] == kind
    assert answer.headers["vary"] == "Accept"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert ("content-security-policy" in answer.headers) == html


async def test_the_policy_allows_the_script_and_the_style_of_the_page_and_nothing_else(
    served: Served,
) -> None:
    answer = await served.client.get("/")
    policy = dict(
        rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; ")
    )
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (inner,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert policy.pop(rule) == f"'sha256-{digest}'"
    assert policy == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


async def test_the_page_needs_nothing_from_elsewhere(served: Served) -> None:
    text = (await served.client.get("/")).text
    assert not re.search(r"\son\w+=", text), "no handler stands in an attribute"
    assert not re.search(r"\sstyle=", text), "no style stands in an attribute"
    assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|eval|import)\b\s*[(=]", text)
    outside = set(re.findall(r"(?:https?:)?//[\w.-]+", text.replace("://localhost/v1", "")))
    assert {one for one in outside if "." in one} <= {"http://www.w3.org"}, "an icon's namespace"
    assert "<noscript>" in text


async def test_a_head_says_what_a_get_would(served: Served) -> None:
    got, head = await served.client.get("/"), await served.client.head("/")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type", "content-security-policy"):
        assert head.headers[name] == got.headers[name]


def test_every_file_of_the_page_is_in_the_wheel(tmp_path: Path) -> None:
    build = "import sys; from flit_core.buildapi import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=HERE, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    place = HERE / "weightd/api/page"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name.rpartition("/")[2] for name in archive.namelist() if "/api/page/" in name}
    assert {one.name for one in place.iterdir() if one.is_file()} == packed
    assert b"</html>" in read_document().html


# -- At which name -------------------------------------------------------------------


OWN = ["localhost:9777", "127.0.0.1:9777", "[::1]:9777", "node-17", "w.localhost", "LOCALHOST"]


@pytest.mark.parametrize("host", OWN)
async def test_the_listener_on_loopback_answers_at_its_own_names(root: Path, host: str) -> None:
    async with serving(root, door="read-only") as served:
        answer = await served.client.get("/", headers=AS_JSON | {"Host": host})
        assert answer.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9777", "127.0.0.1.evil.example."])
async def test_no_name_that_others_lead_here_reads_the_page(root: Path, host: str) -> None:
    async with serving(root, door="read-only") as served:
        for headers in ({"Host": host}, AS_JSON | {"Host": host}):
            refused = problem(await served.client.get("/", headers=headers))
            assert refused["code"] == "forbidden"
            assert "http://localhost" in refused["detail"]


# -- The figures ---------------------------------------------------------------------


async def test_it_tells_of_the_models_and_of_those_who_keep_them(served: Served) -> None:
    await served.put("org/a", 10_000)
    await served.put("org/b@v1", 20_000)
    for number in range(KEEPERS_SHOWN + 3):
        await served.client.put(f"/v1/pins/h{number}/org/a?ttl=60")
    await served.put("org/a", 30_000)  # the one before stays, pinned
    told = await seen(served, sort="key")
    assert [one["key"] for one in told["models"]] == ["org/a", "org/a", "org/b@v1"]
    assert (told["generations"], told["matching"], told["status"]["models"]) == (3, 3, 2)
    (retired,) = [one for one in told["models"] if not one["current"]]
    assert (retired["bytes"], retired["pins"], retired["use"]) == (10_000, KEEPERS_SHOWN + 3, None)
    assert retired["keepers_total"] == KEEPERS_SHOWN + 3
    assert [one["holder"] for one in retired["keepers"]] == [f"h{n}" for n in range(KEEPERS_SHOWN)]
    assert retired["keepers"][0]["until"] > retired["keepers"][0]["since"]


RANKS: dict[str, Callable[[Any], Any]] = {
    "key": lambda one: one["key"],
    "bytes": lambda one: one["bytes"],
    "published": lambda one: one["published_at"],
    "used": lambda one: one["last_used_at"],
    "hits": lambda one: one["hits"],
    "kept": lambda one: one["pins"],
}


async def test_the_first_of_them_are_told_in_any_order(served: Served) -> None:
    for number in range(12):
        key = f"org-{number % 3}/m{number:02}"
        await served.put(key, 4096 * (1 + number * 7 % 11))
        for _ in range(number % 4):
            await served.client.get(f"/v1/models/{key}")
        for holder in range(number % 3):
            await served.client.put(f"/v1/pins/h{holder}/{key}")
    everything = (await seen(served))["models"]
    assert len(everything) == 12
    for name, rank in RANKS.items():
        for sort, turned in ((name, False), (f"-{name}", True)):
            told = await seen(served, sort=sort, limit=5)
            assert told["matching"] == 12
            first = sorted(map(rank, everything), reverse=turned)[:5]
            assert [rank(one) for one in told["models"]] == first, sort
            keyed = [(rank(one), one["key"]) for one in told["models"]]
            assert keyed == sorted(keyed, reverse=turned), "where that is equal, by key"
    told = await seen(served, match="ORG-1/M", limit=2)
    assert (told["matching"], len(told["models"]), told["generations"]) == (4, 2, 12)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "sort=size", "sort=", f"match={'x' * 201}", "page=2"]
)
async def test_what_it_does_not_know_is_refused(served: Served, query: str) -> None:
    for headers in (AS_JSON, {}):
        refused = problem(await served.client.get(f"/?{query}", headers=headers))
        assert refused["code"] == "invalid-request"


async def test_refusals_say_what_to_do_and_are_told_once_however_often(served: Served) -> None:
    await served.put("org/kept", BUDGET // 2)
    await served.client.put("/v1/pins/replica-1/org/kept")
    for _ in range(3):
        await served.put("org/blocked", BUDGET * 3 // 4)
    await served.put("org/huge", BUDGET + 1)
    huge, blocked = (await seen(served))["refusals"]
    assert (huge["key"], huge["code"], huge["retryable"]) == ("org/huge", "too-large", False)
    assert "Raise the capacity" in huge["detail"]
    assert (blocked["key"], blocked["code"], blocked["count"]) == ("org/blocked", "blocked", 3)
    assert (blocked["bytes"], blocked["retryable"]) == (BUDGET * 3 // 4, True)
    assert "Held by replica-1 (org/kept)" in blocked["detail"]
    assert blocked["first_at"] <= blocked["last_at"]
    for number in range(REFUSALS_KEPT + 5):
        await served.put(f"org/huge-{number}", BUDGET + 1)
    told = (await seen(served))["refusals"]
    last = REFUSALS_KEPT + 4
    assert [one["key"] for one in told] == [f"org/huge-{last - n}" for n in range(REFUSALS_SHOWN)]


async def test_a_refusal_is_told_until_the_model_is_here(served: Served) -> None:
    await served.put("org/kept", BUDGET // 2)
    await served.client.put("/v1/pins/replica-1/org/kept")
    await served.put("org/late", BUDGET * 3 // 4)
    await served.put("org/huge", BUDGET + 1)
    assert len((await seen(served))["refusals"]) == 2
    await served.client.delete("/v1/pins/replica-1/org/kept")
    await _created(served.put("org/late", BUDGET * 3 // 4))
    assert [one["key"] for one in (await seen(served))["refusals"]] == ["org/huge"]


async def test_the_last_evictions_are_told_by_the_next_run_too(root: Path) -> None:
    async with serving(root) as served:
        for number in range(RECENT + 5):
            await served.put(f"m{number}", 1000)
            await served.client.delete(f"/v1/models/m{number}")
        before = (await seen(served))["evictions"]
        assert [one["key"] for one in before] == [f"m{RECENT + 4 - n}" for n in range(RECENT)]
        assert before[0]["reason"] == "request"
    async with serving(root) as served:
        assert (await seen(served))["evictions"] == before


async def test_a_fetch_that_failed_is_told_until_another_begins(served: Served) -> None:
    asked = {"key": "org/m", "source": "http://127.0.0.1:9/<b>m", "holder": "h"}
    for _ in range(2):
        assert (await served.client.post("/v1/fetch?wait=30", json=asked)).status_code == 502
    (failed,) = (await seen(served))["failures"]
    assert (failed["key"], failed["code"], failed["retryable"]) == ("org/m", "origin-failed", True)
    assert failed["detail"]
    assert failed["source"].startswith("http://127.0.0.1:9/")


async def test_pins_that_cannot_be_written_down_are_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.put("m", 10)

    def full(*_: object) -> None:
        raise StateUnwritable("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PinDatabase, "apply", full)
        assert (await served.client.put("/v1/pins/h/m")).status_code == 503
        assert (await seen(served))["unwritable"] == "No space left on device"
    assert (await served.client.put("/v1/pins/h/m")).status_code == 201
    assert (await seen(served))["unwritable"] is None


async def test_it_is_there_while_the_daemon_starts(root: Path) -> None:
    store = await asyncio.to_thread(Store.open, root)
    cache = WeightCache(store, capacity=BUDGET)
    try:
        async with answering(cache, Desk(cache), "read-only") as served:
            assert (await served.client.get("/")).status_code == 200
            assert (await seen(served))["status"]["state"] == "starting"
            assert (await served.client.get("/v1/models")).status_code == 503
    finally:
        await cache.close()
        await asyncio.to_thread(store.close)


# -- Arrivals ------------------------------------------------------------------------


async def halting(body: bytes, goes_on: asyncio.Event) -> AsyncIterator[bytes]:
    yield body[: len(body) // 2]
    await goes_on.wait()
    yield body[len(body) // 2 :]


async def test_a_put_is_told_while_it_arrives(served: Served) -> None:
    goes_on, body = asyncio.Event(), content("m", 200_000)
    length = {"Content-Length": str(len(body))}
    put = served.client.put("/v1/models/org/m", content=halting(body, goes_on), headers=length)
    async with asyncio.TaskGroup() as group:
        group.create_task(_created(put))
        told = await until(served, _has_begun)
        (one,) = told["arrivals"]
        assert (one["kind"], one["key"], one["state"]) == ("put", "org/m", "arriving")
        assert (one["bytes_done"], one["bytes_total"]) == (100_000, 200_000)
        assert told["arrivals_total"] == 1
        goes_on.set()
    assert (await seen(served))["arrivals"] == []


def _has_begun(told: Any) -> bool:
    return any(one["bytes_done"] for one in told["arrivals"])


async def _created(put: Awaitable[Any]) -> None:
    assert (await put).status_code == 201


async def test_an_arrival_that_waits_for_room_and_an_upload_are_told(served: Served) -> None:
    await served.put("org/kept", BUDGET // 2)
    await served.client.put("/v1/pins/h/org/kept")
    asked = {"key": "org/u", "files": [{"path": "w", "bytes": 8192}]}
    upload = (await served.client.post("/v1/uploads", json=asked)).json()
    async with asyncio.TaskGroup() as group:
        group.create_task(_created(served.put("org/waits", BUDGET * 3 // 4, wait=30)))
        told = await until(served, lambda told: told["arrivals_total"] == 2)
        waits, uploads = told["arrivals"]
        assert (waits["key"], waits["state"], waits["bytes_done"]) == ("org/waits", "waiting", 0)
        assert (uploads["key"], uploads["kind"]) == ("org/u", "upload")
        assert uploads["bytes_total"] == 8192
        await served.client.delete("/v1/pins/h/org/kept")
    assert (await served.client.delete(f"/v1/uploads/{upload['id']}")).status_code == 204
    assert (await seen(served))["arrivals"] == []


async def test_an_upload_that_waits_for_room_is_told(served: Served) -> None:
    await served.put("org/kept", BUDGET // 2)
    await served.client.put("/v1/pins/h/org/kept")
    asked = {"key": "org/u", "files": [{"path": "w", "bytes": BUDGET * 3 // 4}]}
    async with asyncio.TaskGroup() as group:
        begun = group.create_task(served.client.post("/v1/uploads?wait=30", json=asked))
        told = await until(served, lambda told: told["arrivals_total"] == 1)
        [waits] = told["arrivals"]
        assert (waits["key"], waits["kind"], waits["state"]) == ("org/u", "upload", "waiting")
        await served.client.delete("/v1/pins/h/org/kept")
    [arrives] = (await seen(served))["arrivals"]
    assert (arrives["kind"], arrives["state"]) == ("upload", "arriving")
    upload = begun.result().json()["id"]
    assert (await served.client.delete(f"/v1/uploads/{upload}")).status_code == 204
