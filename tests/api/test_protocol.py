"""The connection below the app: heads that do not come, requests in a row, what is no request."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.serving import Served, problem, read_answer
from weightd.api import protocol

READY = b"GET /readyz HTTP/1.1\r\nHost: d\r\n\r\n"


async def test_a_head_that_does_not_end_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    reader, writer = await served.connect()
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: d\r\n")
    answer = await read_answer(reader)
    assert answer.status == 408
    assert problem(answer)["code"] == "stalled"
    assert await reader.read() == b""
    writer.close()


async def test_a_connection_that_says_nothing_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    reader, writer = await served.connect()
    assert await reader.read() == b""
    writer.close()


async def test_the_head_of_a_later_request_is_bounded_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await served.connect()
    writer.write(READY)
    assert (await read_answer(reader)).status == 200
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    writer.write(b"GET /readyz")
    assert (await read_answer(reader)).status == 408
    writer.close()


async def test_requests_in_a_row_are_answered_in_order(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(READY + b"GET /nowhere HTTP/1.1\r\nHost: d\r\n\r\n" + READY)
    assert [(await read_answer(reader)).status for _ in range(3)] == [200, 404, 200]
    writer.close()


async def test_a_large_put_and_a_next_request_share_a_connection(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nContent-Length: 1000000\r\n\r\n")
    writer.write(b"x" * 1_000_000 + READY)
    assert (await read_answer(reader)).status == 201
    assert (await read_answer(reader)).status == 200
    writer.close()


async def test_what_follows_a_request_and_is_none_closes_the_connection(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(READY + b"GARBAGE\r\n\r\n")
    assert (await read_answer(reader)).status == 200
    assert b"200 OK" not in await reader.read()
    writer.close()


async def test_whoever_goes_is_missed_by_each_of_his_requests_in_a_row(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: d\r\n\r\n" + READY)
    await reader.readuntil(b"200 OK")
    writer.close()
    async with asyncio.timeout(20):
        while [one for one in asyncio.all_tasks() if one.get_name() == "hang-up listener"]:
            await asyncio.sleep(0)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_body_is_asked_for_only_where_that_is_known(served: Served, version: str) -> None:
    reader, writer = await served.connect()
    writer.write(f"PUT /v1/models/m HTTP/{version}\r\nHost: d\r\n".encode())
    writer.write(b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    if version == "1.1":
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"x")
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 201 ")
    writer.close()


async def test_an_offer_to_upgrade_is_not_taken(served: Served) -> None:
    answer = await served.exchange(
        b"GET /readyz HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    )
    assert answer.status == 200
    assert answer.headers["connection"] == "close"


async def test_a_method_that_no_route_takes(served: Served) -> None:
    answer = await served.exchange(b"OPTIONS * HTTP/1.1\r\nHost: d\r\n\r\n")
    assert answer.status == 404
    answer = await served.exchange(b"CONNECT d:80 HTTP/1.1\r\nHost: d\r\n\r\n")
    assert answer.status == 400
    assert problem(answer)["what"] == "path"


async def test_a_trailer_is_no_header(served: Served) -> None:
    """Whoever filters headers ahead of us does not see what comes behind the body."""
    assert (await served.put("m", 10)).status_code == 201
    reader, writer = await served.connect()
    writer.write(
        b"PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\nIf-None-Match: *\r\nContent-Type: application/x-tar\r\n\r\n"
    )
    assert (await read_answer(reader)).status == 201
    writer.close()


@pytest.mark.parametrize("pieces", [1, 8])
async def test_the_size_of_a_head_is_bounded_however_it_is_cut(served: Served, pieces: int) -> None:
    head = b"GET /readyz HTTP/1.1\r\nHost: d\r\n" + b"A: %s\r\n" % (b"x" * 100) * 1500 + b"\r\n"
    reader, writer = await served.connect()
    size = len(head) // pieces + 1
    for start in range(0, len(head), size):
        writer.write(head[start : start + size])
        await writer.drain()
    answer = await read_answer(reader)
    assert answer.status == 400
    assert "headers" in problem(answer)["detail"]
    writer.close()


async def test_trailers_are_bounded_too(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(
        b"PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\n" + b"A: %s\r\n" % (b"x" * 100) * 1500
    )
    assert (await read_answer(reader)).status == 400
    writer.close()
    assert (await served.client.get("/v1/models/m")).status_code == 404


@pytest.mark.parametrize("name", ["If-None-Match", "Content-Type"])
async def test_a_header_that_means_one_thing_is_sent_once(served: Served, name: str) -> None:
    reader, writer = await served.connect()
    line = name.encode() + b': "*"\r\n'
    writer.write(
        b"PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nContent-Length: 3\r\n" + line * 2 + b"\r\nabc"
    )
    answer = await read_answer(reader)
    assert answer.status == 400
    assert name in problem(answer)["detail"]
    writer.close()
