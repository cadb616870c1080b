"""The worked example over HTTP, at 1 MB for 1 GB."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import Served, problem, serving

MB = 1_000_000
SLACK = 4096 * 4
"""Models are counted in blocks of the filesystem, a little over their bytes."""


@pytest.fixture
async def served(root: Path) -> AsyncIterator[Served]:
    async with serving(root, capacity=300 * MB + SLACK) as served:
        yield served


async def figures(served: Served) -> Any:
    return (await served.client.get("/v1/status")).json()


async def keys(served: Served) -> list[str]:
    listed = (await served.client.get("/v1/models")).json()
    return [one["key"] for one in listed["models"]]


async def put(served: Served, key: str, megabytes: int) -> Any:
    return await served.put(key, megabytes * MB)


async def refused(served: Served, key: str, megabytes: int) -> Any:
    """Ask to put, see it refused before a byte, and return the problem."""
    answer = await served.exchange(
        f"PUT /v1/models/{key} HTTP/1.1\r\nHost: d\r\nExpect: 100-continue\r\n"
        f"Content-Length: {megabytes * MB}\r\n\r\n".encode()
    )
    return problem(answer)


async def test_the_worked_example(served: Served) -> None:
    await put(served, "llama-70b", 140)
    await put(served, "mixtral", 90)
    assert (await figures(served))["used_bytes"] // MB == 230
    await served.client.get("/v1/models/llama-70b")

    assert (await put(served, "qwen-72b", 145)).status_code == 201
    assert await keys(served) == ["llama-70b", "qwen-72b"]
    status = await figures(served)
    assert (status["used_bytes"] // MB, status["evictions"]) == (285, 1)

    await served.client.put("/v1/pins/replica-1/llama-70b")
    blocked = await refused(served, "big", 200)
    assert blocked["code"] == "blocked"
    assert [one["holder"] for one in blocked["holders"]] == ["replica-1"]
    assert (await refused(served, "huge", 400))["code"] == "too-large"
    assert await keys(served) == ["llama-70b", "qwen-72b"]

    await served.client.put("/v1/pins/replica-2/llama-70b")
    await served.client.delete("/v1/pins/replica-1/llama-70b")
    assert (await refused(served, "big", 200))["code"] == "blocked"
    await served.client.delete("/v1/pins/replica-2/llama-70b")
    assert (await put(served, "big", 200)).status_code == 201


async def test_a_replaced_model_makes_the_room(root: Path) -> None:
    async with serving(root, capacity=20 * MB) as served:
        await put(served, "m", 14)
        answer = await served.client.put("/v1/models/m", content=b"y" * (14 * MB))
        assert answer.status_code == 201
        assert (await figures(served))["used_bytes"] // MB == 14


async def test_a_refused_replacement_leaves_the_old_model(served: Served) -> None:
    before = (await put(served, "m", 1)).json()["digest"]
    assert (await refused(served, "m", 400))["code"] == "too-large"
    assert (await served.client.get("/v1/models/m")).json()["digest"] == before


async def test_a_replaced_pinned_model_stays_until_its_pin_goes(served: Served) -> None:
    old = (await put(served, "m", 1)).json()
    await served.client.put("/v1/pins/h/m")
    await served.client.put("/v1/models/m", content=b"new")
    assert (await figures(served))["retired_bytes"] >= MB
    assert Path(old["file"]).exists()
    await served.client.delete("/v1/pins/h/m")
    assert (await figures(served))["retired_bytes"] == 0
