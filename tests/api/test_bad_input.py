"""Every bad key, holder, header, length or parameter: the part is named, nothing changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.serving import Answer, Served, problem, serving
from weightd.cache import Options

LONG = "x" * 201

BAD_KEYS = [
    "",
    "/a",
    "a/",
    "a//b",
    "a/../b",
    "..",
    ".",
    "%2e%2e",
    "a%2F..%2Fb",
    "a%2f%2fb",
    "a%00b",
    "%00",
    "a%0Ab",
    "m%0A",
    "caf%C3%A9",
    "%E6%A8%A1",
    "%ff%fe",
    "%252e",
    "a%20b",
    "a+b",
    "a@",
    "@v",
    "a@b@c",
    "a@b/c",
    "a/b/c/d/e/f/g",
    "-a",
    LONG,
    "%zz",
    "%",
]

ROUTES = [
    ("GET", "/v1/models/{}"),
    ("HEAD", "/v1/models/{}"),
    ("PUT", "/v1/models/{}"),
    ("DELETE", "/v1/models/{}"),
    ("GET", "/v1/content/{}"),
    ("PUT", "/v1/pins/h/{}"),
    ("DELETE", "/v1/pins/h/{}"),
]


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One daemon for all of them, since none of them may change it."""
    # No flush in the background, which would be under way when one of the tests ends.
    still = Options(flush_interval=3600.0)
    async with serving(tmp_path_factory.mktemp("bad") / "cache", options=still) as served:
        await served.put("kept", 1000)
        yield served


@pytest.fixture(autouse=True)
async def unchanged(served: Served) -> AsyncIterator[None]:
    """Nothing that is bad changes anything."""
    before = (await served.client.get("/v1/status")).json()
    yield
    after = (await served.client.get("/v1/status")).json()
    for figure in ("models", "pins", "used_bytes", "reserved_bytes", "arrivals", "evictions"):
        assert after[figure] == before[figure], figure


async def raw(
    served: Served, method: str, target: str, headers: str = "", body: str = ""
) -> Answer:
    """Send a request that no client library would, and read its answer."""
    head = f"{method} {target} HTTP/1.1\r\nHost: d\r\n{headers}Connection: close\r\n\r\n"
    return await served.exchange((head + body).encode())


@pytest.mark.parametrize("key", BAD_KEYS)
async def test_a_bad_key_is_invalid_on_every_route(served: Served, key: str) -> None:
    for method, route in ROUTES:
        headers = "Content-Length: 1\r\n" if method == "PUT" else ""
        if method == "HEAD":
            reader, writer = await served.connect()
            writer.write(f"HEAD {route.format(key)} HTTP/1.1\r\nHost: d\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            continue
        answer = await raw(served, method, route.format(key), headers, "x" if headers else "")
        assert answer.status == 400, (method, route)
        document = problem(answer)
        assert document["code"] == "invalid-key"
        assert document["reason"]


async def test_raw_unicode_in_a_key_is_an_invalid_key(served: Served) -> None:
    answer = await served.exchange("GET /v1/models/modèle HTTP/1.1\r\nHost: d\r\n\r\n".encode())
    document = problem(answer)
    assert document["code"] == "invalid-key"
    assert document["key"] == "modèle"


async def test_the_offending_part_of_a_key_is_named(served: Served) -> None:
    answer = await raw(served, "GET", "/v1/models/org/b%20d/x")
    assert "'b d'" in problem(answer)["detail"]


@pytest.mark.parametrize(
    ("method", "target", "headers", "named"),
    [
        ("GET", "/v1/models?limit=0", "", "limit"),
        ("GET", "/v1/models?limit=-1", "", "limit"),
        ("GET", "/v1/models?limit=1e3", "", "limit"),
        ("GET", "/v1/models?limit=1_0", "", "limit"),
        ("GET", "/v1/models?limit=%2B5", "", "limit"),
        ("GET", "/v1/models?limit=99999999999999999999999", "", "limit"),
        ("GET", "/v1/models?limit=", "", "limit"),
        ("GET", "/v1/models?limit=5&limit=5", "", "limit"),
        ("GET", "/v1/models?limits=5", "", "limits"),
        ("GET", "/v1/models?limit=%zz", "", "limit"),
        ("GET", "/v1/models?limit=%ff", "", "limit"),
        ("GET", "/v1/models/kept?x=1", "", "x"),
        ("HEAD", "/v1/models/kept?x=1", "", None),
        ("DELETE", "/v1/models/kept?force=1", "", "force"),
        ("GET", "/v1/content/kept?file=../kept", "", "file"),
        ("GET", "/v1/content/kept?file=", "", "file"),
        ("GET", "/v1/content/kept?file=/etc/passwd", "", "file"),
        ("GET", "/v1/content/kept?file=a%00", "", "file"),
        ("GET", "/v1/content/kept", "Range: bytes=\r\n", "Range"),
        ("GET", "/v1/content/kept", "Range: bytes=-\r\n", "Range"),
        ("GET", "/v1/content/kept", "Range: bytes=5-3\r\n", "Range"),
        ("GET", "/v1/content/kept", "Range: bytes=a-b\r\n", "Range"),
        ("GET", "/v1/content/kept", "Range: bytes\r\n", "Range"),
        ("GET", "/v1/content/kept", "Range: bytes=--1\r\n", "Range"),
        ("PUT", "/v1/pins/h/kept?ttl=0", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=-5", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=NaN", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=inf", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=1e999", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=99999999999", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?ttl=Forever", "", "ttl"),
        ("PUT", "/v1/pins/h/kept?generation=abc", "", "generation"),
        ("PUT", "/v1/pins//kept", "", "holder"),
        ("PUT", "/v1/pins/a%2Fb/kept", "", "holder"),
        ("PUT", "/v1/pins/a%20b/kept", "", "holder"),
        ("PUT", "/v1/pins/caf%C3%A9/kept", "", "holder"),
        ("PUT", f"/v1/pins/{'h' * 129}/kept", "", "holder"),
        ("DELETE", "/v1/pins/%00/kept", "", "holder"),
        ("PUT", "/v1/models/m?sha256=12", "Content-Length: 0\r\n", "sha256"),
        ("PUT", "/v1/models/m?wait=-1", "Content-Length: 0\r\n", "wait"),
        ("PUT", "/v1/models/m?wait=nan", "Content-Length: 0\r\n", "wait"),
        ("PUT", "/v1/models/m?wait=999999", "Content-Length: 0\r\n", "wait"),
        ("PUT", "/v1/models/m?bytes=-1", "Content-Length: 0\r\n", "bytes"),
        ("PUT", "/v1/models/m?bytes=1.5", "Content-Length: 0\r\n", "bytes"),
        ("PUT", "/v1/models/m?bytes=4", "Content-Length: 5\r\n", "bytes"),
        ("PUT", "/v1/models/m?file=a//b", "Content-Length: 0\r\n", "file"),
        ("PUT", "/v1/models/m", "", "Content-Length"),
        ("PUT", "/v1/models/m", "Content-Length: -5\r\n", "Content-Length"),
        ("PUT", "/v1/models/m", "Content-Length: +5\r\n", "Content-Length"),
        ("PUT", "/v1/models/m", "Content-Length: five\r\n", "Content-Length"),
        ("PUT", "/v1/models/m", "Content-Length:\r\n", "Content-Length"),
        ("PUT", "/v1/models/m", f"Content-Length: {'9' * 30}\r\n", "Content-Length"),
        ("PUT", "/v1/models/m", "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length"),
        (
            "PUT",
            "/v1/models/m",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length",
        ),
        ("PUT", "/v1/models/m", "Transfer-Encoding: gzip\r\n", "Transfer-Encoding"),
        ("PUT", "/v1/models/m", "Content-Length: 0\r\nIf-None-Match: x\r\n", "If-None-Match"),
        ("PUT", "/v1/models/m", "Content-Length: 0\r\nIf-Match: *\r\n", "If-Match"),
        (
            "PUT",
            "/v1/models/m",
            "Content-Length: 0\r\nContent-Range: bytes 0-1/9\r\n",
            "Content-Range",
        ),
        ("GET", "/v1/evictions?after=-1", "", "after"),
        ("GET", "/v1/events?after=x", "", "after"),
        ("GET", "/healthz?verbose", "", "verbose"),
        ("FETCH", "/v1/models", "", "method"),
    ],
)
async def test_a_bad_part_is_named(
    served: Served, method: str, target: str, headers: str, named: str | None
) -> None:
    if method == "HEAD":
        assert (await served.client.head(target)).status_code == 400
        return
    answer = await raw(served, method, target, headers)
    assert answer.status == 400
    document = problem(answer)
    assert document["code"] == "invalid-request"
    assert [fault["what"] for fault in document["faults"]] == [named]
    assert document["faults"][0]["reason"]


async def test_after_is_a_key(served: Served) -> None:
    answer = await served.client.get("/v1/models", params={"after": "a//b"})
    assert problem(answer)["code"] == "invalid-key"


async def test_all_faults_are_told_in_one_answer(served: Served) -> None:
    answer = await served.client.put("/v1/pins/a%20b/kept?ttl=-1&generation=x&colour=red&ttl=2")
    faults = {fault["what"] for fault in problem(answer)["faults"]}
    assert faults == {"holder", "ttl", "generation", "colour"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("{}", ["bytes"]),
        ("", ["body"]),
        ("[]", ["body"]),
        ("not json", ["body"]),
        ('{"bytes": "5"}', ["bytes"]),
        ('{"bytes": 5.5}', ["bytes"]),
        ('{"bytes": true}', ["bytes"]),
        ('{"bytes": -1}', ["bytes"]),
        ('{"bytes": NaN}', ["bytes"]),
        ('{"bytes": 1e400}', ["bytes"]),
        ('{"bytes": 99999999999999999999999}', ["bytes"]),
        ('{"bytes": 1, "size": 2, "colour": 3}', ["size", "colour"]),
        ('{"bytes": 1, "key": 5}', ["key"]),
        ('{"bytes": 1, "key": "' + "x" * 70_000 + '"}', ["body"]),
    ],
)
async def test_a_bad_json_body_is_named(served: Served, body: str, named: list[str]) -> None:
    answer = await served.client.post("/v1/admission", content=body)
    assert answer.status_code == 400
    assert [fault["what"] for fault in problem(answer)["faults"]] == named


async def test_a_bad_key_in_a_json_body_is_an_invalid_key(served: Served) -> None:
    answer = await served.client.post("/v1/admission", json={"bytes": 1, "key": "a//b"})
    assert problem(answer)["code"] == "invalid-key"


@pytest.mark.parametrize("header", ["Content-Encoding: gzip", "Transfer-Encoding: gzip, chunked"])
async def test_an_encoded_body_is_not_taken(served: Served, header: str) -> None:
    length = "Content-Length: 5\r\n" if header.startswith("Content") else ""
    answer = await raw(served, "PUT", "/v1/models/m", f"{header}\r\n{length}")
    assert answer.status == 415
    assert problem(answer)["header"] == header.partition(":")[0]


async def test_an_archive_takes_neither_file_nor_sha256(served: Served) -> None:
    for parameter in ("file=a", f"sha256={'0' * 64}"):
        answer = await served.client.put(
            f"/v1/models/m?{parameter}", content=b"x", headers={"Content-Type": "application/x-tar"}
        )
        assert problem(answer)["what"] == parameter.partition("=")[0]


@pytest.mark.parametrize(
    "target", ["/index.html", "/v1", "/v2/models", "/v1/modelsx", "//v1/models", "/v1/pins/h"]
)
async def test_an_unknown_route_is_a_problem(served: Served, target: str) -> None:
    answer = await raw(served, "GET", target)
    assert answer.status == 404
    assert problem(answer)["code"] == "not-found"


async def test_a_wrong_method_is_a_problem_with_allow(served: Served) -> None:
    answer = await served.client.post("/v1/models/kept")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"
    assert problem(answer)["code"] == "method-not-allowed"
    answer = await served.client.get("/v1/pins/accept-loss")
    assert answer.headers["allow"] == "POST"


async def test_what_the_parser_refuses_is_a_problem(served: Served) -> None:
    for head in ("GARBAGE", "GET /a b HTTP/1.1", "GET / HTTP/1.1\r\nA b: c"):
        answer = await served.exchange(f"{head}\r\n\r\n".encode())
        assert answer.status == 400
        assert problem(answer)["code"] == "invalid-request"
        assert answer.headers["connection"] == "close"


async def test_a_huge_head_is_refused(served: Served) -> None:
    answer = await served.exchange(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
    assert problem(answer)["what"] == "headers"
