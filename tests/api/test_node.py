"""Status, admission, evictions, events, health: over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from tests.api.serving import BUDGET, Answer, Served, answering, problem, serving
from weightd import __version__
from weightd.api import Desk, Limits
from weightd.api.eventstream import EventStream
from weightd.cache import EVENT_TYPES, Options, WeightCache
from weightd.cache.records import Event
from weightd.store import Store
from weightd.wire.answers import (
    AdmissionVerdict,
    EventShape,
    EvictionList,
    HealthShape,
    StatusShape,
)


async def test_status_is_flat_and_adds_up(served: Served) -> None:
    await served.put("m", 10_000)
    await served.client.put("/v1/pins/h/m")
    await served.client.get("/v1/models/absent")
    status = (await served.client.get("/v1/status")).json()
    StatusShape.model_validate(status)
    assert set(status) == set(StatusShape.model_fields)
    assert status["version"] == __version__
    assert status["capacity_bytes"] == BUDGET
    assert status["used_bytes"] == status["resident_bytes"] == status["pinned_bytes"] >= 10_000
    assert status["free_bytes"] == BUDGET - status["used_bytes"]
    assert (status["models"], status["pins"]) == (1, 1)
    assert (status["hits"], status["misses"], status["hit_ratio"]) == (1, 1, 0.5)
    assert status["oldest_pin_since"].endswith("Z")


async def test_admission_decides_and_does_nothing(served: Served) -> None:
    async def verdict(size: int) -> Any:
        answer = await served.client.post("/v1/admission", json={"bytes": size})
        assert answer.status_code == 200
        AdmissionVerdict.model_validate(answer.json())
        return answer.json()

    await served.put("old", BUDGET // 2)
    assert (await verdict(1000))["verdict"] == "fits"
    evicts = await verdict(BUDGET * 3 // 4)
    assert evicts["verdict"] == "evicts"
    assert [victim["key"] for victim in evicts["victims"]] == ["old"]
    assert (await verdict(BUDGET + 1))["verdict"] == "too-large"
    await served.client.put("/v1/pins/h/old")
    blocked = await verdict(BUDGET * 3 // 4)
    assert (blocked["verdict"], blocked["reason"]) == ("blocked", "pins")
    assert blocked["holders"][0]["holder"] == "h"
    assert blocked["probed"]
    assert (await served.client.get("/v1/status")).json()["models"] == 1


async def test_admission_counts_what_would_be_replaced(served: Served) -> None:
    await served.put("m", BUDGET * 3 // 4)
    answer = await served.client.post("/v1/admission", json={"bytes": BUDGET // 2, "key": "m"})
    assert [victim["key"] for victim in answer.json()["victims"]] == ["m"]


async def test_the_journal_says_why_and_for_whom(served: Served) -> None:
    await served.put("a", BUDGET // 2)
    await served.put("b", BUDGET * 3 // 4)
    await served.client.delete("/v1/models/b")
    journal = (await served.client.get("/v1/evictions")).json()
    EvictionList.model_validate(journal)
    first, second = journal["evictions"]
    assert (first["key"], first["reason"], first["beneficiary"]) == ("a", "admission", "b")
    assert (second["key"], second["reason"], second["beneficiary"]) == ("b", "request", None)
    assert first["idle_seconds"] >= 0
    page = (await served.client.get("/v1/evictions?limit=1&after=0")).json()
    assert [one["key"] for one in page["evictions"]] == ["a"]
    rest = (await served.client.get(f"/v1/evictions?after={page['next']}")).json()
    assert [one["key"] for one in rest["evictions"]] == ["b"]
    assert rest["next"] is None


async def test_events_are_lines_as_they_happen(served: Served) -> None:
    async with served.client.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"] == "application/x-ndjson"
        lines = stream.aiter_lines()
        await served.put("m", 10)
        await served.client.put("/v1/pins/h/m")
        events = [json.loads(await anext(lines)) for _ in range(2)]
    for event in events:
        EventShape.model_validate(event)
        assert event["type"] in EVENT_TYPES
        assert event["at"].endswith("Z")
    assert [event["type"] for event in events] == ["published", "pinned"]
    assert (events[0]["key"], events[1]["holder"]) == ("m", "h")
    assert events[1]["seq"] == events[0]["seq"] + 1

    async with served.client.stream("GET", f"/v1/events?after={events[0]['seq']}") as stream:
        assert json.loads(await anext(stream.aiter_lines())) == events[1]


async def test_events_have_a_heartbeat_and_an_end(root: Path) -> None:
    async with serving(root, options=Options(heartbeat=0.01)) as served:
        async with served.client.stream("GET", "/v1/events") as stream:
            lines = stream.aiter_lines()
            assert json.loads(await anext(lines)) == {"type": "heartbeat"}
            served.cache.drain()
            rest = [json.loads(line) async for line in lines]
        assert rest[-1]["type"] == "end"
        assert {line["type"] for line in rest[:-1]} <= {"heartbeat"}


async def test_a_reader_that_has_gone_is_told_nothing_more_of_what_there_is() -> None:
    """However much of it: each line would be made for nobody."""

    async def happening() -> AsyncIterator[Event]:
        for number in count(1):
            yield Event(number, "published", 0.0, {})

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def nobody(message: Message) -> None:
        """Takes it at once, as a server does whose peer is not there."""

    stream = EventStream(happening(), idle_timeout=60.0)
    async with asyncio.timeout(60.0):
        await stream({"type": "http", "method": "GET"}, gone, nobody)


async def test_an_event_reader_that_goes_is_let_go(served: Served) -> None:
    before = len(asyncio.all_tasks())
    reader, writer = await served.connect()
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: d\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > before:
            await served.client.get("/readyz")


async def test_head_of_a_stream_ends(served: Served) -> None:
    answer = await served.client.head("/v1/events")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "target",
    ["/v1/models", "/v1/pins", "/v1/status", "/v1/evictions", "/healthz", "/readyz", "/metrics"],
)
async def test_head_answers_wherever_get_does(served: Served, target: str) -> None:
    answer = await served.client.head(target)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_health_and_readiness(served: Served) -> None:
    for target in ("/healthz", "/readyz"):
        answer = await served.client.get(target)
        assert answer.status_code == 200
        HealthShape.model_validate(answer.json())


async def test_draining_is_alive_and_not_ready_and_takes_nothing_new(served: Served) -> None:
    await served.put("m", 10)
    served.cache.drain()
    assert (await served.client.get("/healthz")).json()["state"] == "draining"
    for answer in (
        await served.client.get("/readyz"),
        await served.put("n", 10),
        await served.client.put("/v1/pins/h/m"),
    ):
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert problem(answer)["code"] == "draining"
    assert (await served.client.get("/v1/models/m")).status_code == 200


async def test_starting_is_alive_and_answers_nothing_of_models(root: Path) -> None:
    store = await asyncio.to_thread(Store.open, root)
    with store:
        cache = WeightCache(store, capacity=BUDGET)
        async with answering(cache, Desk(cache), "admin") as served:
            assert (await served.client.get("/healthz")).json()["state"] == "starting"
            assert (await served.client.get("/metrics")).status_code == 200
            for target in ("/readyz", "/v1/models", "/v1/models/m", "/v1/pins", "/v1/events"):
                answer = await served.client.get(target)
                assert answer.status_code == 503, target
                assert "retry-after" in answer.headers
                assert problem(answer)["code"] == "starting"
            await cache.start()
            assert (await served.client.get("/readyz")).status_code == 200
        await cache.close()


async def test_a_disk_that_hangs_hangs_no_probe(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    async with serving(root, limits=Limits(probe_timeout=0.01)) as served:
        monkeypatch.setattr(served.desk, "snapshot", hangs)
        for target in ("/healthz", "/v1/status", "/metrics"):
            answer = await served.client.get(target)
            assert answer.status_code == 503
            assert problem(answer)["code"] == "unhealthy"


async def test_what_nobody_foresaw_is_a_problem_and_is_logged(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks() -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(served.desk, "snapshot", breaks)
    answer = await served.client.get("/v1/status")
    assert answer.status_code == 500
    assert problem(answer)["code"] == "internal"
    assert "secret" not in answer.text
    (record,) = [one for one in caplog.records if one.name.startswith("weightd")]
    assert record.exc_info is not None
    assert (await served.client.get("/readyz")).status_code == 200


async def test_connections_are_kept(served: Served) -> None:
    reader, writer = await served.connect()
    for _ in range(3):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: d\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert Answer(200, {}, await reader.readexactly(32)).json()["status"] == "ok"
    writer.close()
