"""Warming over HTTP: one answer at the end, or how far it is line by line."""

from __future__ import annotations

import json

from tests.api.serving import Served, problem
from weightd.wire.answers import WarmEventShape, WarmShape

LINES = {"Accept": "application/x-ndjson"}


async def test_it_is_answered_at_its_end(served: Served) -> None:
    await served.put("m", 10_000)
    answer = await served.client.post("/v1/warm/m")
    assert answer.status_code == 200
    assert WarmShape.model_validate_json(answer.text) == WarmShape(bytes=10_000, cached=10_000)


async def test_it_is_told_as_it_goes(served: Served) -> None:
    await served.put("m", 10_000)
    answer = await served.client.post("/v1/warm/m", headers=LINES)
    assert answer.headers["content-type"] == "application/x-ndjson"
    told = [json.loads(line) for line in answer.text.splitlines()]
    for line in told:
        WarmEventShape.model_validate(line)
    last = told[-1]
    assert (last["type"], last["outcome"]) == ("end", "warm")
    assert last["warming"]["cached"] == last["warming"]["bytes_done"] == 10_000
    assert last["warming"]["problem"] is None


async def test_a_refusal_is_no_stream(served: Served) -> None:
    answer = await served.client.post("/v1/warm/not-here", headers=LINES)
    assert (answer.status_code, problem(answer)["code"]) == (404, "not-resident")
