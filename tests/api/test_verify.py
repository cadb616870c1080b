"""Verification over the socket: lines until the end, and none for who has left."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import Served, answering, problem, serving
from tests.api.test_uploads import announced, begun, commit, fill
from tests.polling import eventually
from tests.store.damages import flip_byte
from weightd.wire.answers import VerifyEventShape


async def lines(served: Served, key: str) -> list[Any]:
    """Every line of a verification but heartbeats, each as it is described."""
    answer = await served.client.post(f"/v1/verify/{key}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    told = []
    for line in answer.text.splitlines():
        VerifyEventShape.model_validate_json(line)
        one = json.loads(line)
        if one["type"] != "heartbeat":
            told.append(one)
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    return told


async def test_a_whole_model(served: Served) -> None:
    record = (await served.put("org/m@v1", 100_000)).json()
    *_, last = await lines(served, "org%2Fm@v1")
    assert (last["type"], last["outcome"]) == ("end", "whole")
    told = last["verification"]
    assert (told["key"], told["generation"]) == ("org/m@v1", record["generation"])
    assert told["bytes_done"] == told["bytes_total"] == 100_000
    assert (told["damaged"], told["shared"], told["kept"], told["problem"]) == ([], [], False, None)
    status = (await served.client.get("/v1/status")).json()
    assert (status["hits"], status["misses"], status["damaged_models"]) == (0, 0, 0)


async def test_a_damaged_model(served: Served) -> None:
    record = (await served.put("m", 100_000)).json()
    flip_byte(Path(record["file"]), 99_999)
    *_, last = await lines(served, "m")
    assert last["outcome"] == "damaged"
    (flaw,) = last["verification"]["damaged"]
    assert (flaw["path"], flaw["problem"]) == ("m", "digest-mismatch")
    assert flaw["expected"] == record["files"][0]["sha256"] != flaw["actual"]
    assert problem(await served.client.get("/v1/models/m"))["code"] == "not-resident"
    (entry,) = (await served.client.get("/v1/evictions")).json()["evictions"]
    assert (entry["key"], entry["reason"]) == ("m", "damage")
    assert (await served.client.get("/v1/status")).json()["damaged_models"] == 1
    assert "weightd_damaged_models_total 1.0" in (await served.client.get("/metrics")).text


async def test_what_was_trusted_unread_is_read_at_last(served: Served) -> None:
    upload = await begun(served, trusted=True, files=announced({"x": b"12"}, sha256="ab" * 32))
    fill(upload, {"x": b"12"})
    assert (await commit(served, upload)).status_code == 201
    *_, last = await lines(served, "org/m")
    (flaw,) = last["verification"]["damaged"]
    assert (flaw["path"], flaw["problem"]) == ("x", "digest-mismatch")
    assert (flaw["expected"], flaw["actual"]) == ("ab" * 32, hashlib.sha256(b"12").hexdigest())


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("none", 404, "not-resident"),
        ("a//b", 400, "invalid-key"),
        ("", 400, "invalid-key"),
        ("none?wait=1", 400, "invalid-request"),
    ],
)
async def test_a_refusal_is_no_stream(served: Served, target: str, status: int, code: str) -> None:
    answer = await served.client.post(f"/v1/verify/{target}")
    assert (answer.status_code, problem(answer)["code"]) == (status, code)


async def test_it_is_asked_for_at_the_admin_socket_alone(root: Path) -> None:
    async with (
        serving(root) as admin,
        answering(admin.cache, admin.desk, "replica") as replica,
    ):
        await admin.put("m", 1000)
        answer = await replica.client.post("/v1/verify/m")
        assert (answer.status_code, problem(answer)["code"]) == (403, "forbidden")


async def test_it_ends_when_its_caller_goes(served: Served) -> None:
    await served.put("m", 1_000_000)
    # What looks and seizures take, a reading takes for each of its steps.
    store = served.cache._context.store
    with store._seizing:
        _, writer = await served.connect()
        writer.write(b"POST /v1/verify/m HTTP/1.1\r\nHost: weightd\r\nContent-Length: 0\r\n\r\n")
        await eventually(lambda: bool(served.cache.verifications._running))
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: not served.cache.verifications._running)
    assert (await lines(served, "m"))[-1]["outcome"] == "whole"
