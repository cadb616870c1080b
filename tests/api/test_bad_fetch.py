"""Every bad field, key, wait, source or id of a fetch: the part is named, nothing begins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.serving import Served, problem, serving

GOOD = {"key": "m", "source": "http://127.0.0.1:1/m.bin"}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One daemon for all of them, since none of them may change it."""
    async with serving(tmp_path_factory.mktemp("bad") / "cache") as served:
        yield served


@pytest.fixture(autouse=True)
async def nothing_begins(served: Served) -> AsyncIterator[None]:
    yield
    assert (await served.client.get("/v1/fetches")).json() == {"fetches": []}
    assert (await served.client.get("/v1/status")).json()["misses"] == 0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"key": None}, {"key"}),
        ({"key": 5}, {"key"}),
        ({"source": None}, {"source"}),
        ({"source": 5}, {"source"}),
        ({"source": ""}, {"source"}),
        ({"source": []}, {"source"}),
        ({"source": [5]}, {"source"}),
        ({"source": ["http://127.0.0.1:1/m"] * 17}, {"source"}),
        ({"source": "http://127.0.0.1:1/" + "m" * 5000}, {"source"}),
        ({"source": "m.bin"}, {"source"}),
        ({"source": "ftp://host/m.bin"}, {"source"}),
        ({"source": "http://"}, {"source"}),
        ({"source": "http://user:hush@127.0.0.1:1/m.bin"}, {"source"}),
        ({"source": "http://127.0.0.1:1/a/../m.bin"}, {"source"}),
        ({"source": "http://127.0.0.1:1/%2e%2e/m.bin"}, {"source"}),
        ({"source": ["http://127.0.0.1:1/m.bin", "nothing"]}, {"source"}),
        ({"source": "hf://"}, {"source"}),
        ({"source": "s3://bucket"}, {"source"}),
        ({"source": "http://127.0.0.1:1/m\nx"}, {"source"}),
        ({"digest": "abc"}, {"digest"}),
        ({"holder": "a b"}, {"holder"}),
        ({"holder": ""}, {"holder"}),
        ({"holder": "weightd:preload"}, {"holder"}),
        ({"holder": "h", "ttl": 0}, {"ttl"}),
        ({"holder": "h", "ttl": -1}, {"ttl"}),
        ({"holder": "h", "ttl": True}, {"ttl"}),
        ({"holder": "h", "ttl": "5"}, {"ttl"}),
        ({"holder": "h", "ttl": 10**400}, {"ttl"}),
        ({"ttl": 5}, {"ttl"}),
        ({"revalidate": "yes"}, {"revalidate"}),
        ({"credential": "../x"}, {"credential"}),
        ({"colour": "red"}, {"colour"}),
        ({"colour": "red", "digest": "x", "source": 5}, {"colour", "digest", "source"}),
    ],
)
async def test_a_bad_field_is_named(
    served: Served, changed: dict[str, object], named: set[str]
) -> None:
    body = {name: value for name, value in (GOOD | changed).items() if value is not None}
    answer = await served.client.post("/v1/fetch", json=body)
    assert answer.status_code == 400
    document = problem(answer)
    assert document["code"] == "invalid-request"
    assert {fault["what"] for fault in document["faults"]} == named
    assert "hush" not in answer.text, "no password is repeated"


@pytest.mark.parametrize("body", ["", "[]", "5", "{", '{"key": "m"', '{"key": "m", "ttl": NaN}'])
async def test_a_body_that_is_no_request(served: Served, body: str) -> None:
    answer = await served.client.post("/v1/fetch", content=body)
    assert problem(answer)["code"] == "invalid-request"


async def test_a_bad_key_or_wait(served: Served) -> None:
    answer = await served.client.post("/v1/fetch", json=GOOD | {"key": "a//b"})
    assert problem(answer)["code"] == "invalid-key"
    for wait in ("-1", "nan", "3601", "soon"):
        answer = await served.client.post(f"/v1/fetch?wait={wait}", json=GOOD)
        assert problem(answer)["what"] == "wait"
    for source in ("file:///etc", "http://169.254.169.254/latest/meta-data"):
        answer = await served.client.post("/v1/fetch", json=GOOD | {"source": source})
        assert (answer.status_code, problem(answer)["code"]) == (403, "forbidden")


@pytest.mark.parametrize("id", ["", "x", "0" * 16, "%00", "%ff", "a%2Fb", "y" * 5000])
async def test_an_unknown_fetch(served: Served, id: str) -> None:
    for method, target in (("GET", id), ("DELETE", id), ("GET", f"{id}/events")):
        answer = await served.client.request(method, f"/v1/fetches/{target}")
        assert (answer.status_code, problem(answer)["code"]) == (404, "unknown-fetch")
    assert (await served.client.head(f"/v1/fetches/{id}")).status_code == 404
