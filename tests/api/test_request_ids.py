"""Whose request a line of the log belongs to, and how its caller comes to know."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.api.origin import http_origin
from tests.api.serving import Served, serving
from weightd.api import Door
from weightd.cache import Options
from weightd.daemon.logs import JsonFormatter


class Lines(logging.Handler):
    """Every line as a collector would have it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def of(self, message: str) -> list[Any]:
        return [line for line in self.lines if line["message"] == message]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What weightd logs at debug."""
    handler, logger = Lines(), logging.getLogger("weightd")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.fixture(params=get_args(Door))
async def anywhere(root: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """Each door in turn."""
    async with serving(root, door=request.param) as served:
        yield served


@pytest.mark.parametrize(
    "id", ["a", "0af7651916cd43dd8448eb211c80319c", "Root=1-67/+@:._", "x" * 128]
)
async def test_a_sane_id_is_kept(served: Served, lines: Lines, id: str) -> None:
    for path, status in (("/v1/status", 200), ("/v1/models/none", 404), ("/nowhere", 404)):
        answer = await served.client.get(path, headers={"X-Request-Id": id})
        assert (answer.status_code, answer.headers["x-request-id"]) == (status, id)
    assert {line["request"] for line in lines.of("request")} == {id}


@pytest.mark.parametrize("id", ["", "x" * 129, "a b", 'a"b', "a\tb", "é", "a;b", "a%0ab"])
async def test_any_other_is_replaced(served: Served, lines: Lines, id: str) -> None:
    answer = await served.client.get("/v1/status", headers={b"X-Request-Id": id.encode("latin-1")})
    made = answer.headers["x-request-id"]
    assert made != id
    assert [line["request"] for line in lines.of("request")] == [made]


async def test_each_answer_has_its_own_at_every_door(anywhere: Served) -> None:
    asked = [("GET", "/healthz"), ("GET", "/v1/models/m"), ("PUT", "/v1/models/m"), ("GET", "/x")]
    answers = [await anywhere.client.request(method, path) for method, path in asked]
    ids = [answer.headers["x-request-id"] for answer in answers]
    # What the parser refuses, and a head that is too long, come before any route.
    for sent in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000 + b"\r\n\r\n"):
        refused = await anywhere.exchange(sent)
        assert refused.status == 400
        ids.append(refused.headers["x-request-id"])
    assert len(set(ids)) == len(ids)


async def test_what_a_request_does_is_told_with_its_id(served: Served, lines: Lines) -> None:
    async def told(method: str, path: str, **more: Any) -> None:
        await served.client.request(method, path, headers={"X-Request-Id": f"id-{method}"}, **more)

    await told("PUT", "/v1/models/m", content=b"weights")
    await told("POST", "/v1/models/none")
    await told("DELETE", "/v1/models/m")
    assert [line["request"] for line in lines.of("published")] == ["id-PUT"]
    (evicted,) = lines.of("evicted")
    assert (evicted["request"], evicted["reason"], evicted["key"]) == ("id-DELETE", "request", "m")
    assert evicted["bytes"] > 0
    assert evicted["idle_seconds"] >= 0
    (put,) = [line for line in lines.of("request") if line["method"] == "PUT"]
    assert (put["route"], put["status"], put["received"]) == ("/v1/models/{key}", 201, 7)
    assert put["key"] == "m"
    assert put["bytes"] > 0
    assert put["seconds"] > 0


async def test_a_refusal_has_one_line_with_figures_and_holders(
    served: Served, lines: Lines
) -> None:
    assert (await served.put("kept", 3_000_000)).status_code == 201
    assert (await served.client.put("/v1/pins/replica-1/kept")).status_code == 201
    assert (await served.put("more", 2_000_000)).status_code == 503
    assert (await served.put("huge", 5_000_000)).status_code == 413
    assert (await served.client.delete("/v1/models/kept")).status_code == 409
    blocked, large = lines.of("refused")
    assert (blocked["key"], blocked["code"], blocked["reason"]) == ("more", "blocked", "pins")
    assert blocked["held_by"] == "replica-1 (kept)"
    assert blocked["bytes"] == 2_000_000
    assert blocked["pinned"] >= 3_000_000
    assert (large["code"], large["bytes"], large["capacity"]) == ("too-large", 5_000_000, 4_000_000)
    (pinned,) = lines.of("a request was refused")
    assert (pinned["code"], pinned["key"], pinned["level"]) == ("pinned", "kept", "info")
    assert "held_by" not in large


async def test_pins_taken_at_once_are_each_of_their_own_request(
    served: Served, lines: Lines
) -> None:
    await served.put("m", 10)

    async def pin(n: int) -> None:
        headers = {"X-Request-Id": f"pin-{n}"}
        answer = await served.client.put(f"/v1/pins/holder-{n}/m", headers=headers)
        assert answer.status_code == 201

    await asyncio.gather(*map(pin, range(20)))
    told = {line["holder"]: line["request"] for line in lines.of("pinned")}
    assert told == {f"holder-{n}": f"pin-{n}" for n in range(20)}
    assert {line["level"] for line in lines.of("pinned")} == {"info"}
    await served.client.put("/v1/pins/holder-0/m")
    assert lines.of("pinned")[-1]["level"] == "debug", "a renewal"


async def test_a_fetch_is_of_the_request_that_began_it(root: Path, lines: Lines) -> None:
    with http_origin() as origin:
        sources = {name: origin.file(f"{name}.bin", bytes(10_000)) for name in "abc"}
        origin.flowing.clear()
        async with serving(root, options=Options(fetch_concurrency=1)) as served:
            for name, source in sources.items():
                asked = {"key": name, "source": source}
                headers = {"X-Request-Id": f"fetch-{name}"}
                await served.client.post("/v1/fetch", json=asked, headers=headers)
            origin.flowing.set()
            for name, source in sources.items():
                asked = {"key": name, "source": source}
                assert (
                    await served.client.post("/v1/fetch?wait=30", json=asked)
                ).status_code == 200
    for message in ("fetching", "fetched"):
        told = {line["key"]: line["request"] for line in lines.of(message)}
        assert told == {name: f"fetch-{name}" for name in sources}, message
    (first, *_) = lines.of("fetched")
    assert (first["bytes"], first["bytes_reused"]) == (10_000, 0)
    assert first["rate"] > 0
    assert first["seconds"] > 0


async def test_the_last_source_that_fails_is_told_once(served: Served, lines: Lines) -> None:
    with http_origin() as origin:
        asked = {"key": "m", "source": [f"{origin.url}/one.bin", f"{origin.url}/two.bin"]}
        assert (await served.client.post("/v1/fetch?wait=30", json=asked)).status_code == 502
    (on,) = lines.of("a fetch goes on to its next source")
    (failed,) = lines.of("fetch-failed")
    assert "one.bin" in on["reason"]
    assert "two.bin" in failed["reason"]
    assert failed["code"] == "origin-failed"
    assert not [line for line in lines.lines if line["message"] == "a request was refused"]
