"""Uploads: room promised, a directory filled by its writer, verified and published."""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import BUDGET, Served, problem, serving

FILES = {"model.safetensors": b"w" * 10_000, "tokenizer/vocab.json": b"{}", "empty": b""}


def announced(files: dict[str, bytes] = FILES, **more: object) -> list[dict[str, object]]:
    return [{"path": path, "bytes": len(body), **more} for path, body in files.items()]


async def begin(served: Served, **fields: object) -> httpx.Response:
    asked = {"key": "org/m", "files": announced()} | fields
    return await served.client.post("/v1/uploads", json=asked)


async def begun(served: Served, **fields: object) -> Any:
    answer = await begin(served, **fields)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"/v1/uploads/{answer.json()['id']}"
    return answer.json()


async def commit(served: Served, upload: Any) -> httpx.Response:
    return await served.client.post(f"/v1/uploads/{upload['id']}/commit")


def fill(upload: Any, files: dict[str, bytes] = FILES) -> None:
    for path, body in files.items():
        place = Path(upload["path"]) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)


async def test_what_was_filled_is_published(served: Served) -> None:
    upload = await begun(served)
    assert upload["bytes"] == sum(map(len, FILES.values()))
    fill(upload)
    answer = await commit(served, upload)
    assert answer.status_code == 201, answer.text
    record = answer.json()
    assert {file["path"]: file["sha256"] for file in record["files"]} == {
        path: hashlib.sha256(body).hexdigest() for path, body in FILES.items()
    }
    place = Path(record["path"])
    for path, body in FILES.items():
        assert (place / path).read_bytes() == body
        assert stat.S_IMODE((place / path).stat().st_mode) == 0o444
    assert stat.S_IMODE((place / "tokenizer").stat().st_mode) == 0o555
    assert not Path(upload["path"]).exists()
    again = await commit(served, upload)
    assert (again.status_code, again.json()["digest"]) == (200, record["digest"])
    status = (await served.client.get("/v1/status")).json()
    assert (status["reserved_bytes"], status["used_bytes"]) == (0, 16384)
    assert (await served.client.get("/v1/uploads")).json() == {"uploads": []}


async def test_the_same_content_is_here_already(served: Served) -> None:
    for status in (201, 200):
        upload = await begun(served)
        fill(upload)
        assert (await commit(served, upload)).status_code == status
    assert (await served.client.get("/v1/status")).json()["used_bytes"] == 16384


async def test_it_is_listed_with_what_is_there(served: Served) -> None:
    upload = await begun(served)
    fill(upload)
    await served.cache.uploads.tidy()
    (listed,) = (await served.client.get("/v1/uploads")).json()["uploads"]
    assert listed == upload | {"written": 16384, "expires_at": listed["expires_at"]}
    assert (await served.client.get("/v1/status")).json()["written_bytes"] == 16384


def too_long(place: Path) -> None:
    (place / "model.safetensors").write_bytes(b"w" * 10_001)


def too_short(place: Path) -> None:
    (place / "model.safetensors").write_bytes(b"w" * 9_999)


def missing(place: Path) -> None:
    (place / "empty").unlink()


def not_announced(place: Path) -> None:
    (place / "tokenizer" / "more").write_bytes(b"")


def linked(place: Path) -> None:
    os.link(place / "model.safetensors", place.parent / "elsewhere")


def symbolic(place: Path) -> None:
    (place / "empty").unlink()
    (place / "empty").symlink_to("/etc/hostname")


def piped(place: Path) -> None:
    (place / "empty").unlink()
    os.mkfifo(place / "empty")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (too_long, "it has 10001 bytes, not 10000"),
        (too_short, "it has 9999 bytes, not 10000"),
        (missing, "not there yet"),
        (not_announced, "not announced"),
        (linked, "another name"),
        (symbolic, "no plain file"),
        (piped, "no plain file"),
    ],
)
async def test_what_is_wrong_is_told_and_can_be_mended(
    served: Served, spoil: Any, words: str
) -> None:
    upload = await begun(served)
    fill(upload)
    place = Path(upload["path"])
    spoil(place)
    document = problem(await commit(served, upload))
    assert (document["status"], document["code"]) == (400, "invalid-request")
    assert words in document["detail"]
    for path in ("empty", "tokenizer/more"):
        (place / path).unlink(missing_ok=True)
    (place.parent / "elsewhere").unlink(missing_ok=True)
    fill(upload)
    assert (await commit(served, upload)).status_code == 201


async def test_other_content_than_was_announced(served: Served) -> None:
    upload = await begun(served, files=announced({"x": b"12"}, sha256="0" * 64))
    fill(upload, {"x": b"12"})
    document = problem(await commit(served, upload))
    assert document["code"] == "digest-mismatch"
    assert document["actual"] == hashlib.sha256(b"12").hexdigest()
    # It is its writer's again.
    (Path(upload["path"]) / "x").write_bytes(b"21")


async def test_trusted_hashes_are_taken_as_they_are(served: Served) -> None:
    refused = problem(await begin(served, trusted=True))
    assert (refused["code"], refused["what"]) == ("invalid-request", "trusted")
    upload = await begun(served, trusted=True, files=announced({"x": b"12"}, sha256="ab" * 32))
    fill(upload, {"x": b"12"})
    record = (await commit(served, upload)).json()
    assert record["files"][0]["sha256"] == "ab" * 32


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_file_that_is_still_written_to(served: Served, mapped: bool) -> None:
    upload = await begun(served, files=announced({"x": b"12"}))
    fill(upload, {"x": b"12"})
    file = (Path(upload["path"]) / "x").open("r+b")
    with file, mmap.mmap(file.fileno(), 2) as mapping:
        if mapped:
            file.close()
        document = problem(await commit(served, upload))
        assert (document["code"], document["key"]) == ("in-use", "org/m")
        assert "x open for writing" in document["reason"]
        mapping[:] = b"34"
    record = (await commit(served, upload)).json()
    assert record["files"][0]["sha256"] == hashlib.sha256(b"34").hexdigest()


async def test_more_than_was_announced_ends_it(served: Served) -> None:
    upload = await begun(served, files=announced({"x": b"12"}))
    fill(upload, {"x": b"w" * 100_000})
    await served.cache.uploads.tidy()
    assert not Path(upload["path"]).exists()
    document = problem(await commit(served, upload))
    assert (document["code"], document["what"]) == ("invalid-request", "upload")
    assert "102400 bytes were written, 4096 were announced" in document["detail"]
    assert (await served.client.get("/v1/status")).json()["reserved_bytes"] == 0


async def test_it_is_given_up(served: Served) -> None:
    upload = await begun(served)
    fill(upload)
    assert (await served.client.delete(f"/v1/uploads/{upload['id']}")).status_code == 204
    assert not Path(upload["path"]).exists()
    for call in (
        served.client.delete(f"/v1/uploads/{upload['id']}"),
        served.client.post(f"/v1/uploads/{upload['id']}/commit"),
    ):
        assert problem(await call)["code"] == "unknown-upload"


async def test_it_has_to_fit(served: Served) -> None:
    too_large = problem(await begin(served, files=[{"path": "x", "bytes": BUDGET + 1}]))
    assert (too_large["code"], too_large["bytes"]) == ("too-large", BUDGET + 1)
    first = await begun(served, files=[{"path": "x", "bytes": BUDGET // 2}])
    blocked = problem(await begin(served, files=[{"path": "x", "bytes": BUDGET // 2 + 4096}]))
    assert (blocked["code"], blocked["reason"]) == ("blocked", "arriving")
    assert served.cache._context.counters.rejections == {
        "too-large": 1,
        "blocked": 1,
        "disk-full": 0,
    }
    await served.client.delete(f"/v1/uploads/{first['id']}")
    await begun(served, files=[{"path": "x", "bytes": BUDGET // 2 + 4096}])


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "files"),
        ([{"path": "../x", "bytes": 1}], "files.0.path"),
        ([{"path": "x", "bytes": -1}], "files.0.bytes"),
        ([{"path": "x", "bytes": 1}, {"path": "x", "bytes": 1}], "twice"),
        ([{"path": "x", "bytes": 1}, {"path": "x/y", "bytes": 1}], "x"),
        ([{"path": "x", "bytes": 1, "mode": 7}], "files.0.mode"),
    ],
)
async def test_a_bad_announcement(served: Served, files: object, words: str) -> None:
    document = problem(await begin(served, files=files))
    assert (document["status"], document["code"]) == (400, "invalid-request")
    assert words in document["detail"]
    assert (await served.client.get("/v1/status")).json()["reserved_bytes"] == 0
    assert not list((served.cache._context.store.root / "incoming").iterdir())


async def test_it_ends_with_the_daemon(root: Path) -> None:
    async with serving(root) as served:
        upload = await begun(served)
        fill(upload)
    assert not list((root / "incoming").iterdir())
    assert not list((root / "models").iterdir())


AS_ANOTHER = """
import http.client, json, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
def call(path, body=None):
    unix = Unix('localhost')
    unix.request('POST', path, body and json.dumps(body), {'Content-Type': 'application/json'})
    answer = unix.getresponse()
    told = json.loads(answer.read())
    assert answer.status == 201, told
    return told
upload = call('/v1/uploads', {'key': 'm', 'files': [{'path': 'a/x', 'bytes': 2}]})
with open(upload['path'] + '/a/x', 'w') as file:
    file.write('12')
record = call('/v1/uploads/' + upload['id'] + '/commit')
try:
    open(record['path'] + '/a/x', 'r+')
except PermissionError:
    print(record['path'])
"""


@pytest.mark.needs("root", "setpriv")
async def test_another_user_fills_it_and_has_it_no_more() -> None:
    """He writes where nobody else may, and what he wrote is weightd's then."""
    with tempfile.TemporaryDirectory(prefix="weightd-") as directory:
        os.chmod(directory, 0o755)
        async with serving(Path(directory) / "cache") as served:
            served.socket.chmod(0o666)
            process = await asyncio.create_subprocess_exec(
                *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
                *(sys.executable, "-c", AS_ANOTHER, str(served.socket)),
                stdout=asyncio.subprocess.PIPE,
                env={},
            )
            told, _ = await process.communicate()
            assert process.returncode == 0
            place = Path(told.decode().strip())
            for path in (place, place / "a", place / "a/x"):
                assert path.stat().st_uid == 0
