"""Models over a real socket: put, look up, peek, list, delete."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import BUDGET, Served, content, problem
from weightd.wire.answers import ListedModel, ModelList, ModelRecord

TAR = {"Content-Type": "application/x-tar"}


def tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


async def test_a_put_file_comes_back_as_a_path(served: Served) -> None:
    data = content("org/model", 100_000)
    answer = await served.client.put("/v1/models/org/model@v1", content=data)
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/models/org/model@v1"
    record = answer.json()
    ModelRecord.model_validate(record)
    assert record["key"] == "org/model@v1"
    assert record["file"] == f"{record['path']}/model"
    assert Path(record["file"]).read_bytes() == data
    assert record["files"] == [
        {"path": "model", "bytes": 100_000, "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert record["bytes"] == 100_000
    assert record["generation"] == record["digest"]

    found = await served.client.get("/v1/models/org%2Fmodel@v1")
    assert found.status_code == 200
    assert found.json()["path"] == record["path"]
    assert found.json()["hits"] == 1


async def test_a_tar_comes_back_as_a_directory(served: Served) -> None:
    files = {"config.json": b"{}", "sub/weights.bin": content("w", 5000)}
    answer = await served.client.put("/v1/models/dir", content=tar(files), headers=TAR)
    assert answer.status_code == 201
    record = answer.json()
    assert record["file"] is None
    assert [entry["path"] for entry in record["files"]] == ["config.json", "sub/weights.bin"]
    for name, data in files.items():
        assert (Path(record["path"]) / name).read_bytes() == data


async def test_text_plain_answers_the_path_alone(served: Served) -> None:
    record = (await served.put("m", 10)).json()
    text = await served.client.get("/v1/models/m", headers={"Accept": "text/plain"})
    assert text.text == record["path"]
    assert text.headers["content-type"].startswith("text/plain")
    for accept in ("*/*", "application/json", "application/json, text/plain, */*"):
        answer = await served.client.get("/v1/models/m", headers={"Accept": accept})
        assert answer.headers["content-type"] == "application/json"
    miss = await served.client.get("/v1/models/absent", headers={"Accept": "text/plain"})
    assert problem(miss)["code"] == "not-resident"


async def test_head_neither_counts_nor_touches(served: Served) -> None:
    await served.put("m", 10)
    assert (await served.client.head("/v1/models/m")).status_code == 200
    absent = await served.client.head("/v1/models/absent")
    assert absent.status_code == 404
    assert absent.content == b""
    status = (await served.client.get("/v1/status")).json()
    assert (status["hits"], status["misses"]) == (0, 0)


async def test_a_miss_is_counted_and_told(served: Served) -> None:
    answer = await served.client.get("/v1/models/absent")
    assert answer.status_code == 404
    assert problem(answer) | {"key": "absent", "retryable": False} == problem(answer)
    assert (await served.client.get("/v1/status")).json()["misses"] == 1


async def test_the_same_content_is_answered_with_200(served: Served) -> None:
    assert (await served.put("m", 1000)).status_code == 201
    again = await served.put("m", 1000)
    assert again.status_code == 200
    assert "location" not in again.headers


async def test_list_pages_in_order_of_keys(served: Served) -> None:
    for key in ("b", "a/x", "c@2"):
        await served.put(key, 10)
    first = (await served.client.get("/v1/models", params={"limit": 2})).json()
    ModelList.model_validate(first)
    assert [one["key"] for one in first["models"]] == ["a/x", "b"]
    assert all("files" not in one for one in first["models"])
    rest = (await served.client.get("/v1/models", params={"after": first["next"]})).json()
    assert [one["key"] for one in rest["models"]] == ["c@2"]
    assert rest["next"] is None
    ListedModel.model_validate(rest["models"][0])


async def test_delete_evicts_now(served: Served) -> None:
    await served.put("m", 10)
    gone = await served.client.delete("/v1/models/m")
    assert (gone.status_code, gone.content) == (204, b"")
    assert problem(await served.client.delete("/v1/models/m"))["code"] == "not-resident"


async def test_if_none_match_star_creates_only(served: Served) -> None:
    create = {"If-None-Match": "*"}
    first = await served.client.put("/v1/models/m", content=b"one", headers=create)
    assert first.status_code == 201
    second = await served.client.put("/v1/models/m", content=b"two", headers=create)
    assert second.status_code == 412
    assert problem(second)["digest"] == first.json()["digest"]
    assert (await served.client.get("/v1/models/m")).json()["digest"] == first.json()["digest"]


async def test_if_none_match_digest_answers_before_the_body(served: Served) -> None:
    digest = (await served.put("m", 1000)).json()["digest"]
    reader, writer = await served.connect()
    writer.write(
        b"PUT /v1/models/m HTTP/1.1\r\nHost: d\r\nContent-Length: 1000\r\n"
        b'Expect: 100-continue\r\nIf-None-Match: "' + digest.encode() + b'"\r\n\r\n'
    )
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()


async def test_a_file_can_be_named_and_its_sha256_declared(served: Served) -> None:
    data = b"weights"
    digest = hashlib.sha256(data).hexdigest()
    answer = await served.client.put(
        "/v1/models/m", content=data, params={"file": "sub/w.gguf", "sha256": digest.upper()}
    )
    assert answer.json()["file"].endswith("/m/sub/w.gguf")
    wrong = await served.client.put("/v1/models/m", content=b"other", params={"sha256": digest})
    assert wrong.status_code == 422
    assert problem(wrong)["expected"] == digest
    assert problem(wrong)["file"] == "m"
    kept = (await served.client.get("/v1/models/m")).json()
    assert kept["files"][0]["sha256"] == digest


async def test_refusals_carry_the_figures(served: Served) -> None:
    await served.put("pinned", BUDGET // 2)
    await served.client.put("/v1/pins/replica-1/pinned")
    blocked = await served.put("m", BUDGET * 3 // 4)
    assert blocked.status_code == 503
    assert int(blocked.headers["retry-after"]) > 0
    document = problem(blocked)
    assert document["code"] == "blocked"
    assert document["retryable"] is True
    assert document["reason"] == "pins"
    assert document["bytes"] == BUDGET * 3 // 4
    holder = document["holders"][0]
    assert (holder["holder"], holder["key"], holder["until"]) == ("replica-1", "pinned", None)
    assert holder["since"].endswith("Z")

    large = await served.put("m", BUDGET + 1)
    assert large.status_code == 413
    assert "retry-after" not in large.headers
    document = problem(large)
    assert document["retryable"] is False
    assert (document["bytes"], document["capacity"]) == (BUDGET + 1, BUDGET)


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("absolute", tar({"/etc/passwd": b"x"})),
        ("climbing", tar({"../x": b"x"})),
        ("truncated", tar({"a": content("a", 5000)})[:3000]),
        ("no archive", b"x" * 2000),
    ],
)
async def test_a_hostile_archive_is_refused_whole(
    served: Served, name: str, archive: bytes
) -> None:
    answer = await served.client.put("/v1/models/m", content=archive, headers=TAR)
    assert answer.status_code == 400, name
    assert problem(answer)["code"] == "invalid-archive"
    assert (await served.client.get("/v1/models")).json()["models"] == []
    status = (await served.client.get("/v1/status")).json()
    assert (status["reserved_bytes"], status["arrivals"]) == (0, 0)


async def test_a_body_in_chunks_grows_into_free_bytes(served: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 50_000

    answer = await served.client.put("/v1/models/m", content=chunks())
    assert answer.status_code == 201
    assert answer.json()["bytes"] == 1_000_000
    bounded = await served.client.put("/v1/models/n", content=chunks(), params={"bytes": 999_999})
    assert bounded.status_code == 400
    assert problem(bounded)["what"] == "bytes"
    assert (await served.client.head("/v1/models/n")).status_code == 404
