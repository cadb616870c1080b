"""Adoption: a user's files become a model where they are, or are where they were."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.api.serving import BUDGET, Served, problem, serving

FILES: Final = {"model.safetensors": b"w" * 10_000, "tokenizer/vocab.json": b"{}", "empty": b""}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of the user's, beside the root."""
    place = tmp_path / "home"
    for path, body in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(body)
    (place / "model.safetensors").chmod(0o640)
    return place


def offered(home: Path, **more: object) -> list[dict[str, object]]:
    return [
        {"path": path, "place": str(home / path), "bytes": len(body), **more}
        for path, body in FILES.items()
    ]


async def adopt(served: Served, home: Path, **fields: object) -> httpx.Response:
    asked = {"key": "org/m", "files": offered(home)} | fields
    return await served.client.post("/v1/adopt", json=asked)


def state_of(home: Path) -> dict[str, tuple[object, ...]]:
    """Every file with what an adoption could change of it."""
    found: dict[str, tuple[object, ...]] = {}
    for one in sorted(home.rglob("*")):
        status = one.lstat()
        kept = (status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_nlink)
        content = one.read_bytes() if one.is_file() and not one.is_symlink() else b""
        found[str(one.relative_to(home))] = (*kept, content)
    return found


async def refused(served: Served, home: Path, **fields: object) -> Any:
    """The problem of an adoption that is refused and changes nothing."""
    before = state_of(home)
    document = problem(await adopt(served, home, **fields))
    assert state_of(home) == before
    root = served.cache._context.store.root
    for name in ("incoming", "models"):
        assert not list((root / name).iterdir())
    status = (await served.client.get("/v1/status")).json()
    assert (status["reserved_bytes"], status["used_bytes"]) == (0, 0)
    return document


async def test_files_become_a_model_without_being_copied(served: Served, home: Path) -> None:
    inode = (home / "model.safetensors").stat().st_ino
    answer = await adopt(served, home, source="hf://org/m", revision="abc")
    assert answer.status_code == 201, answer.text
    record = answer.json()
    assert {file["path"]: file["sha256"] for file in record["files"]} == {
        path: hashlib.sha256(body).hexdigest() for path, body in FILES.items()
    }
    assert (record["source"], record["revision"]) == ("hf://org/m", "abc")
    place = Path(record["path"])
    for path, body in FILES.items():
        assert (place / path).read_bytes() == body
        assert stat.S_IMODE((place / path).stat().st_mode) == 0o444
        assert not (home / path).exists()
    assert (place / "model.safetensors").stat().st_ino == inode
    assert sorted(one.name for one in place.parent.iterdir()) == ["m", "manifest.json"]
    status = (await served.client.get("/v1/status")).json()
    assert (status["reserved_bytes"], status["used_bytes"]) == (0, 16384)


async def test_what_is_here_already_stays_where_it_was(served: Served, home: Path) -> None:
    assert (await adopt(served, home)).status_code == 201
    for path, body in FILES.items():
        (home / path).write_bytes(body)
    before = state_of(home)
    answer = await adopt(served, home)
    assert (answer.status_code, state_of(home)) == (200, before)


async def test_trusted_hashes_are_taken_as_they_are(served: Served, home: Path) -> None:
    document = await refused(served, home, files=offered(home, trusted=True))
    assert (document["code"], document["what"]) == ("invalid-request", "trusted")
    record = (await adopt(served, home, files=offered(home, trusted=True, sha256="ab" * 32))).json()
    assert {file["sha256"] for file in record["files"]} == {"ab" * 32}


async def test_other_content_than_was_announced(served: Served, home: Path) -> None:
    document = await refused(served, home, files=offered(home, sha256="ab" * 32))
    assert (document["code"], document["expected"]) == ("digest-mismatch", "ab" * 32)


def link(home: Path) -> None:
    (home / "target").write_bytes(FILES["empty"])
    (home / "empty").unlink()
    (home / "empty").symlink_to(home / "target")


def way_of_links(home: Path) -> None:
    (home / "tokenizer").rename(home / "elsewhere")
    (home / "tokenizer").symlink_to("elsewhere")


def pipe(home: Path) -> None:
    (home / "empty").unlink()
    os.mkfifo(home / "empty")


def grown(home: Path) -> None:
    (home / "empty").write_bytes(b"x")


def missing(home: Path) -> None:
    (home / "empty").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (link, "it is a link; `weightd put` copies it"),
        (way_of_links, "weightd finds no way there: tokenizer: Not a directory"),
        (pipe, "no plain file"),
        (grown, "it has 1 bytes, not 0"),
        (missing, "it is not there"),
    ],
)
async def test_what_cannot_be_adopted(
    served: Served, home: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(home)
    document = await refused(served, home)
    assert (document["status"], document["code"]) == (400, "invalid-request")
    assert f"file {home}" in document["detail"]
    assert words in document["detail"]


async def test_a_file_of_several_names_stays_and_is_not_renamed(served: Served, home: Path) -> None:
    """This filesystem may share its blocks or not; a link that could be written by is never left.

    See tests/filesystems for both kinds.
    """
    os.link(home / "model.safetensors", home.parent / "other")
    before = state_of(home)
    answer = await adopt(served, home)
    if answer.status_code == 400:
        assert "it stays, since it has 2 names" in problem(answer)["detail"]
        assert "`weightd put` copies it" in problem(answer)["detail"]
        assert state_of(home) == before
        return
    assert (home / "model.safetensors").stat().st_nlink == 2
    assert (Path(answer.json()["path"]) / "model.safetensors").stat().st_nlink == 1


async def test_a_file_that_is_open_for_writing(served: Served, home: Path) -> None:
    with (home / "model.safetensors").open("r+b"):
        document = await refused(served, home)
    assert (document["code"], document["key"]) == ("in-use", "org/m")
    assert "model.safetensors open for writing" in document["reason"]
    with (home / "model.safetensors").open("rb") as reader:
        assert (await adopt(served, home)).status_code == 201
        assert reader.read() == FILES["model.safetensors"]


async def test_what_is_not_for_an_adoption(served: Served, home: Path) -> None:
    assert (await adopt(served, home)).status_code == 201
    place = Path((await served.client.get("/v1/models/org/m")).json()["path"])
    document = problem(await adopt(served, place, key="org/n"))
    assert "it is within weightd's own root" in document["detail"]
    for wrong in ("relative", "/a/../b", "/a//b", "/"):
        files = [{"path": "x", "place": wrong, "bytes": 1}]
        document = problem(await adopt(served, home, files=files))
        assert document["what"] == "files.0.place", document


async def test_it_has_to_fit_the_budget(served: Served, home: Path) -> None:
    (home / "model.safetensors").write_bytes(bytes(BUDGET + 1))
    files = offered(home)
    files[0]["bytes"] = BUDGET + 1
    assert (await refused(served, home, files=files))["code"] == "too-large"


async def filled(served: Served) -> None:
    """Have no room, unless something goes."""
    answer = await served.client.put("/v1/models/victim", content=bytes(BUDGET - 4096))
    assert answer.status_code == 201


def opened(home: Path) -> None:
    """Nothing is wrong with it, but somebody writes to it: the test closes it."""


@pytest.mark.parametrize("spoil", [link, way_of_links, pipe, grown, missing, opened])
async def test_nothing_is_evicted_for_what_is_refused(
    served: Served, home: Path, spoil: Callable[[Path], None]
) -> None:
    await filled(served)
    spoil(home)
    with (home / "model.safetensors").open("r+b" if spoil is opened else "rb"):
        assert (await adopt(served, home)).status_code in (400, 409)
    assert (await served.client.get("/v1/models/victim")).status_code == 200


async def test_nothing_is_evicted_for_what_is_elsewhere(served: Served, home: Path) -> None:
    await filled(served)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        place = Path(directory) / "empty"
        place.write_bytes(bytes(BUDGET // 2))
        files = [{"path": "x", "place": str(place), "bytes": BUDGET // 2}]
        document = problem(await adopt(served, home, files=files))
        assert "it stays, since it is on another filesystem" in document["detail"]
    assert (await served.client.get("/v1/models/victim")).status_code == 200


async def test_one_file_is_not_two_of_a_model(served: Served, home: Path) -> None:
    place = str(home / "model.safetensors")
    size = len(FILES["model.safetensors"])
    files = [{"path": path, "place": place, "bytes": size} for path in ("a", "b")]
    document = await refused(served, home, files=files)
    assert document["what"] == f"file {place}"
    assert "two files of one model" in document["detail"]


async def test_a_name_that_is_too_long_to_be_there(served: Served, home: Path) -> None:
    files = [{"path": "x", "place": f"{home}/{300 * 'x'}", "bytes": 1}]
    assert "longer than any" in (await refused(served, home, files=files))["detail"]


async def test_another_filesystem_is_named(served: Served, home: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        place = Path(directory) / "empty"
        place.write_bytes(b"x")
        if place.stat().st_dev == home.stat().st_dev:
            pytest.fail("the test's own directory is in memory; give pytest a --basetemp")
        files = [*offered(home), {"path": "x", "place": str(place), "bytes": 1}]
        document = await refused(served, home, files=files)
        assert document["what"] == f"file {place}"
        assert "(Invalid cross-device link); `weightd put` copies it" in document["detail"]
        assert place.read_bytes() == b"x"


AS_ANOTHER: Final = """
import http.client, json, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
unix = Unix('localhost')
files = [{'path': 'x', 'place': place, 'bytes': 2} for place in sys.argv[2:]]
body = json.dumps({'key': 'm', 'files': files})
unix.request('POST', '/v1/adopt', body, {'Content-Type': 'application/json'})
answer = unix.getresponse()
print(answer.status, json.loads(answer.read()).get('detail'))
"""


@pytest.mark.needs("root", "setpriv")
async def test_a_user_adopts_his_own_and_nobody_elses() -> None:
    with tempfile.TemporaryDirectory(prefix="weightd-") as directory:
        os.chmod(directory, 0o755)
        ours, his = Path(directory, "ours"), Path(directory, "his")
        for place, uid in ((ours, 0), (his, 65534)):
            place.mkdir()
            (place / "x").write_bytes(b"12")
            os.chown(place, uid, uid)
            os.chown(place / "x", uid, uid)
        shared = ours / "his"
        shared.write_bytes(b"12")
        os.chown(shared, 65534, 65534)
        async with serving(Path(directory) / "cache") as served:
            served.socket.chmod(0o666)

            async def said(place: Path) -> str:
                process = await asyncio.create_subprocess_exec(
                    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
                    *(sys.executable, "-c", AS_ANOTHER, str(served.socket), str(place)),
                    stdout=asyncio.subprocess.PIPE,
                    env={},
                )
                told, _ = await process.communicate()
                assert process.returncode == 0
                return told.decode()

            assert "it belongs to user 0, not to 65534" in await said(ours / "x")
            # His file, which he may not take out of another's directory.
            assert "its directory belongs to user 0" in await said(shared)
            assert (ours / "x").exists()
            assert shared.exists()
            assert (await said(his / "x")).startswith("201")
            assert not (his / "x").exists()
            (model,) = (await served.client.get("/v1/models")).json()["models"]
            assert (Path(model["path"]) / "x").stat().st_uid == 0
