"""Fetches over HTTP: a miss becomes a model, once; every way of asking wrongly has its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.origin import Origin, http_origin
from tests.api.serving import BUDGET, Served, answering, problem, serving
from tests.polling import eventually
from weightd.cache import Options
from weightd.origins.contract import Patience, Trust
from weightd.wire.answers import FetchEventShape, FetchList, FetchShape, ModelRecord

OPTIONS = Options(heartbeat=3600.0, patience=Patience(connect=10.0, progress=10.0))


@pytest.fixture
def origin() -> Iterator[Origin]:
    with http_origin() as origin:
        yield origin


@pytest.fixture
async def served(root: Path) -> AsyncIterator[Served]:
    async with serving(root, options=OPTIONS) as served:
        yield served


async def fetch(served: Served, key: str, source: str | list[str], **more: Any) -> httpx.Response:
    """Ask, and wait until it is here."""
    asked = {"key": key, "source": source, **more}
    return await served.client.post("/v1/fetch?wait=30", json=asked)


async def begun(served: Served, key: str, source: str, **more: Any) -> Any:
    """Ask for what is held back at the origin; the job."""
    asked = {"key": key, "source": source, **more}
    answer = await served.client.post("/v1/fetch", json=asked)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def lines(served: Served, id: str) -> AsyncGenerator[Any, None]:
    async with served.client.stream("GET", f"/v1/fetches/{id}/events") as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        async for line in answer.aiter_lines():
            FetchEventShape.model_validate_json(line)
            yield json.loads(line)


async def jobs(served: Served) -> list[Any]:
    found: list[Any] = (await served.client.get("/v1/fetches")).json()["fetches"]
    return found


async def callers_are(served: Served, id: str, number: int) -> bool:
    found = (await served.client.get(f"/v1/fetches/{id}")).json()["callers"]
    return bool(found == number)


async def ended(served: Served, id: str) -> Any:
    """The last line of a fetch's events."""
    async with aclosing(lines(served, id)) as events:
        return [event async for event in events][-1]


# -- A miss becomes a model -------------------------------------------------------------


async def test_a_miss_becomes_a_model_and_then_a_hit(served: Served, origin: Origin) -> None:
    source = origin.listing("m", **{"config.json": b"{}", "weights": bytes(100_000)})
    answer = await fetch(served, "org/m@v1", source)
    assert answer.status_code == 200
    ModelRecord.model_validate_json(answer.text)
    record = answer.json()
    assert (record["key"], record["source"], record["bytes"]) == ("org/m@v1", source, 100_002)
    assert Path(record["path"], "weights").read_bytes() == bytes(100_000)
    asked = len(origin.asked)
    again = await fetch(served, "org/m@v1", source)
    assert (again.status_code, again.json()["generation"]) == (200, record["generation"])
    assert len(origin.asked) == asked, "a hit asks the origin nothing"
    status = (await served.client.get("/v1/status")).json()
    assert (status["hits"], status["misses"]) == (1, 1)


async def test_text_is_the_path_alone(served: Served, origin: Origin) -> None:
    source = origin.file("tiny.gguf", b"gguf" * 100)
    answer = await served.client.post(
        "/v1/fetch?wait=30", json={"key": "t", "source": source}, headers={"Accept": "text/plain"}
    )
    assert answer.headers["content-type"].startswith("text/plain")
    assert Path(answer.text, "tiny.gguf").read_bytes() == b"gguf" * 100


async def test_as_text_a_job_is_nothing_that_a_shell_could_take_for_a_path(
    served: Served, origin: Origin
) -> None:
    origin.flowing.clear()
    answer = await served.client.post(
        "/v1/fetch",
        json={"key": "t", "source": origin.file("t.bin", bytes(1000))},
        headers={"Accept": "text/plain"},
    )
    assert (answer.status_code, answer.text) == (202, "")
    assert (await served.client.get(answer.headers["location"])).json()["key"] == "t"


async def test_it_ends_pinned_for_its_holder(served: Served, origin: Origin) -> None:
    source = origin.file("m.bin", bytes(10_000))
    assert (await fetch(served, "a", source, holder="h")).json()["pins"] == 1
    assert (await fetch(served, "a", source, holder="i", ttl=5)).json()["pins"] == 2
    assert (await fetch(served, "a", source, holder="j", ttl="forever")).json()["pins"] == 3
    pins = {one["holder"]: one for one in (await served.client.get("/v1/pins")).json()["pins"]}
    assert {name: (one["ttl"], one["forever"]) for name, one in pins.items()} == {
        "h": (600.0, False),
        "i": (5.0, False),
        "j": (None, True),
    }


async def test_a_job_is_answered_listed_followed_and_remembered(
    served: Served, origin: Origin
) -> None:
    origin.flowing.clear()
    answer = await served.client.post(
        "/v1/fetch", json={"key": "m", "source": origin.file("m.bin", bytes(50_000))}
    )
    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/fetches/{job['id']}"
    FetchShape.model_validate_json(answer.text)
    assert (job["state"], job["bytes_total"], job["problem"]) == ("downloading", 50_000, None)
    listed = await served.client.get("/v1/fetches")
    FetchList.model_validate_json(listed.text)
    assert [one["id"] for one in listed.json()["fetches"]] == [job["id"]]
    status = (await served.client.get("/v1/status")).json()
    assert (status["fetches_in_flight"], status["models"]) == (1, 0)
    events = lines(served, job["id"])
    async with aclosing(events):
        assert (await anext(events))["type"] == "progress"
        origin.flowing.set()
        rest = [event async for event in events]
    assert [one["type"] for one in rest[:-1]] == ["progress"] * (len(rest) - 1)
    assert (rest[-1]["type"], rest[-1]["outcome"]) == ("end", "done")
    assert [one["seq"] for one in rest] == list(range(2, len(rest) + 2))
    done = (await served.client.get(f"/v1/fetches/{job['id']}")).json()
    assert (done["state"], done["bytes_done"], done["record"]["key"]) == ("done", 50_000, "m")
    assert (await served.client.get("/v1/models/m")).status_code == 200
    assert (await served.client.delete(f"/v1/fetches/{job['id']}")).status_code == 204
    assert (await served.client.get("/v1/fetches")).json() == {"fetches": []}


async def test_callers_of_one_key_share_one_download(served: Served, origin: Origin) -> None:
    source = origin.file("m.bin", bytes(10_000))
    answers = await asyncio.gather(*(fetch(served, "m", source) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["generation"] for answer in answers}) == 1
    assert origin.bodies("m.bin") == 1
    (job,) = (await served.client.get("/v1/fetches")).json()["fetches"]
    assert (job["callers"], job["state"]) == (0, "done")


async def test_a_fetch_goes_on_when_its_caller_leaves(served: Served, origin: Origin) -> None:
    origin.flowing.clear()
    body = json.dumps({"key": "m", "source": origin.file("m.bin", bytes(1000))}).encode()
    _, writer = await served.connect()
    head = f"POST /v1/fetch?wait=600 HTTP/1.1\r\nHost: d\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await eventually(lambda: jobs(served))
    (job,) = await jobs(served)
    writer.close()
    await writer.wait_closed()
    await eventually(lambda: callers_are(served, job["id"], 0))
    origin.flowing.set()
    assert (await ended(served, job["id"]))["outcome"] == "done"


async def test_a_wait_that_is_over_answers_the_job(served: Served, origin: Origin) -> None:
    origin.flowing.clear()
    source = origin.file("m.bin", bytes(1000))
    answer = await served.client.post("/v1/fetch?wait=0.05", json={"key": "m", "source": source})
    assert (answer.status_code, answer.json()["state"]) == (202, "downloading")


async def test_a_drain_answers_who_waits_and_ends_the_events(
    served: Served, origin: Origin
) -> None:
    origin.flowing.clear()
    source = origin.file("m.bin", bytes(1000))
    job = await begun(served, "m", source)
    waiting = asyncio.create_task(fetch(served, "m", source))
    events = lines(served, job["id"])
    async with aclosing(events):
        while (await anext(events))["job"]["callers"] == 0:
            pass
        served.cache.drain()
        assert problem(await waiting)["code"] == "draining"
        last = [event async for event in events][-1]
    assert (last["type"], last["outcome"]) == ("end", "draining")
    assert problem(await fetch(served, "m", source))["code"] == "draining"


# -- What does not become a model --------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "retryable"),
    [(404, {}, False), (403, {}, False), (503, {"Retry-After": "7"}, True)],
)
async def test_what_the_origin_refuses_is_told(
    served: Served, origin: Origin, status: int, headers: dict[str, str], retryable: bool
) -> None:
    origin.refusals["/m.bin"] = (status, headers)
    answer = await fetch(served, "m", f"{origin.url}/m.bin?wait=1")
    document = problem(answer)
    assert (answer.status_code, document["code"]) == (502, "origin-failed")
    assert (document["http_status"], document["retryable"]) == (status, retryable)
    if headers:
        assert int(answer.headers["retry-after"]) >= 1
    (job,) = (await served.client.get("/v1/fetches")).json()["fetches"]
    assert (job["state"], job["problem"]["code"]) == ("failed", "origin-failed")
    assert job["retry_at"] is not None
    asked = len(origin.asked)
    again = await fetch(served, "m", f"{origin.url}/m.bin?wait=1")
    assert problem(again)["http_status"] == status
    assert len(origin.asked) == asked, "it rests"
    assert (await served.client.get("/v1/status")).json()["used_bytes"] == 0


async def test_nobody_listening_is_the_origins_failure(served: Served) -> None:
    document = problem(await fetch(served, "m", "http://127.0.0.1:1/m.bin"))
    assert document["code"] == "origin-failed"
    assert document["source"] == "http://127.0.0.1:1/m.bin"


async def test_too_large_is_told_before_a_byte_is_asked_for(served: Served, origin: Origin) -> None:
    await served.put("kept", 1000)
    answer = await fetch(served, "m", origin.file("big", bytes(BUDGET + 1)))
    assert (answer.status_code, problem(answer)["code"]) == (413, "too-large")
    assert origin.bodies("big") == 0
    assert (await served.client.get("/v1/models/kept")).status_code == 200


async def test_blocked_is_told_before_a_byte_is_asked_for(served: Served, origin: Origin) -> None:
    await served.put("kept", BUDGET // 2)
    await served.client.put("/v1/pins/h/kept")
    source = origin.file("half", bytes(BUDGET // 2 + 10_000))
    answer = await served.client.post("/v1/fetch", json={"key": "m", "source": source})
    document = problem(answer)
    assert (document["code"], document["holders"][0]["holder"]) == ("blocked", "h")
    assert origin.bodies("half") == 0


async def test_other_content_than_the_caller_insists_on(served: Served, origin: Origin) -> None:
    answer = await fetch(served, "m", origin.file("m.bin", b"weights"), digest="0" * 64)
    document = problem(answer)
    assert (answer.status_code, document["code"]) == (422, "digest-mismatch")
    assert document["expected"] == "0" * 64


async def test_another_source_of_a_key_under_way_is_busy(served: Served, origin: Origin) -> None:
    origin.flowing.clear()
    first = await begun(served, "m", origin.file("one.bin", bytes(1000)))
    answer = await fetch(served, "m", origin.file("two.bin", bytes(1000)))
    document = problem(answer)
    assert (answer.status_code, document["code"]) == (409, "busy")
    assert (document["job"], document["source"]) == (first["id"], f"{origin.url}/one.bin")


async def test_a_delete_ends_the_fetch_for_everybody(served: Served, origin: Origin) -> None:
    origin.flowing.clear()
    source = origin.file("m.bin", bytes(1000))
    job = await begun(served, "m", source)
    waiting = asyncio.create_task(fetch(served, "m", source))
    await eventually(lambda: callers_are(served, job["id"], 1))
    assert (await served.client.delete(f"/v1/fetches/{job['id']}")).status_code == 204
    document = problem(await waiting)
    assert (document["status"], document["code"]) == (409, "fetch-cancelled")
    assert (await ended(served, job["id"]))["outcome"] == "cancelled"
    status = (await served.client.get("/v1/status")).json()
    assert (status["reserved_bytes"], status["partials"]) == (0, 0)


# -- At which doors ----------------------------------------------------------------------


@asynccontextmanager
async def doors(root: Path, *allowed: str) -> AsyncIterator[tuple[Served, Served]]:
    options = Options(heartbeat=3600.0, trust=Trust(allowed=allowed))
    async with (
        serving(root, options=options) as admin,
        answering(admin.cache, admin.desk, "replica") as replica,
    ):
        yield admin, replica


async def test_a_replica_fetches_only_what_is_allowed(root: Path, origin: Origin) -> None:
    source = origin.file("m.bin", bytes(1000))
    async with doors(root, f"{origin.url}/") as (admin, replica):
        answer = await fetch(replica, "m", source, holder="h")
        assert (answer.status_code, answer.json()["pins"]) == (200, 1)
        (pin,) = (await admin.client.get("/v1/pins")).json()["pins"]
        assert (pin["holder"], pin["uid"] is None) == ("h", False)
        (job,) = (await replica.client.get("/v1/fetches")).json()["fetches"]
        target = f"/v1/fetches/{job['id']}"
        assert (await replica.client.get(target)).json()["state"] == "done"
        assert (await ended(replica, job["id"]))["outcome"] == "done"
        assert problem(await replica.client.delete(target))["code"] == "forbidden"
        for door in (admin, replica):
            elsewhere = await fetch(door, "n", "http://127.0.0.1:1/m.bin")
            assert problem(elsewhere)["code"] == "forbidden"


async def test_where_nothing_is_allowed_a_replica_fetches_nothing(
    root: Path, origin: Origin
) -> None:
    source = origin.file("m.bin", bytes(1000))
    async with doors(root) as (admin, replica):
        document = problem(await fetch(replica, "m", source))
        assert (document["code"], document["door"]) == ("forbidden", "the admin socket")
        assert (await fetch(admin, "m", source)).status_code == 200
        assert problem(await fetch(replica, "m", source))["code"] == "forbidden", "here or not"


async def test_no_secret_of_a_source_is_shown(served: Served, origin: Origin) -> None:
    source = origin.file("m.bin", bytes(1000)) + "?X-Amz-Signature=hush"
    assert "hush" not in (await fetch(served, "m", source)).text
    assert "hush" not in (await served.client.get("/v1/fetches")).text
    origin.refusals["/n.bin"] = (403, {})
    answer = await fetch(served, "n", f"{origin.url}/n.bin?X-Amz-Signature=hush")
    assert "hush" not in answer.text
    assert "hush" not in (await served.client.get("/v1/fetches")).text
