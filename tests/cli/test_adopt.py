"""``weightd adopt`` on a cache that the hub's own client made, and ``weightd put --adopt``."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.commands import Shell
from tests.origins.servers.hub import Hub, running_hub
from weightd.cli.exits import Exit

pytestmark = pytest.mark.needs("huggingface_hub")

SHARDS: Final = {f"model-0000{n}-of-00002.safetensors": bytes([n]) * 40_000 for n in (1, 2)}
INDEX: Final = json.dumps({"weight_map": {f"t{n}": name for n, name in enumerate(SHARDS)}})
MODEL: Final = {
    **SHARDS,
    "model.safetensors.index.json": INDEX.encode(),
    "config.json": b"{}",
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "tokenizer/vocab.json": b'{"a": 1}',
}
LATER: Final = MODEL | {"model-00002-of-00002.safetensors": b"new" * 9_000, "config.json": b"{ }"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("XET", "TELEMETRY", "PROGRESS_BARS"):
        monkeypatch.setenv(f"HF_HUB_DISABLE_{name}", "1")
    with running_hub() as hub:
        yield hub


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def download(hub: Hub, cache: Path, repository: str = "org/m", **more: Any) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repository, endpoint=hub.url, cache_dir=cache, **more))


def sound(cache: Path) -> dict[str, int]:
    """The revisions of each repository, as the hub's client sees a cache that is not corrupted."""
    from huggingface_hub import scan_cache_dir

    told = scan_cache_dir(cache)
    assert not told.warnings, [str(one) for one in told.warnings]
    return {one.repo_id: len(one.revisions) for one in told.repos}


def listed(shell: Shell, cache: Path) -> list[Any]:
    told = json.loads(shell.out("adopt", cache, "--json"))["snapshots"]
    assert isinstance(told, list)
    return told


def bodies(place: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()
    }


def test_a_snapshot_is_taken_whole_and_the_cache_stays_sound(
    hub: Hub, cache: Path, shell: Shell
) -> None:
    commit = hub.push("org/m", MODEL)
    hub.push("org/other", {"config.json": b"{}", "model.gguf": b"gguf"})
    snapshot = download(hub, cache)
    download(hub, cache, "org/other")
    inodes = {name: (snapshot / name).stat().st_ino for name in SHARDS}
    table = shell.out("adopt", cache)
    assert re.search(rf"org/m +{commit[:12]} +main +8\d\.?\d* kB +6 +whole\n", table), table
    assert [one["repository"] for one in listed(shell, cache)] == ["org/m", "org/other"]

    record = json.loads(shell.out("adopt", cache, "org/m", "--as", "taken/m@v1", "--json"))
    place = Path(record["path"])
    assert bodies(place) == MODEL
    assert {name: (place / name).stat().st_ino for name in SHARDS} == inodes
    assert not any(one.is_symlink() for one in place.rglob("*"))
    assert {one["path"]: one["sha256"] for one in record["files"]} == {
        path: hashlib.sha256(body).hexdigest() for path, body in MODEL.items()
    }
    assert (record["key"], record["source"], record["revision"]) == (
        "taken/m@v1", "hf://org/m", commit,
    )  # fmt: skip
    assert sound(cache) == {"org/other": 1}
    assert not (cache / "models--org--m").exists()
    # The hub's client has it again, as it had it first.
    assert bodies(download(hub, cache)) == MODEL


def test_files_that_are_the_same_blob_leave_nothing(hub: Hub, cache: Path, shell: Shell) -> None:
    model = MODEL | {"copy/config.json": MODEL["config.json"], "z.json": MODEL["config.json"]}
    hub.push("org/same", model)
    download(hub, cache, "org/same")
    assert bodies(Path(shell.out("adopt", cache, "org/same").strip())) == model
    assert not (cache / "models--org--same").exists()


def test_what_another_revision_uses_stays_for_it(hub: Hub, cache: Path, shell: Shell) -> None:
    """Small files are copied where blocks cannot be shared, large ones only when that is asked."""
    first = hub.push("org/two", MODEL)
    download(hub, cache, "org/two")
    hub.push("org/two", LATER)
    later = download(hub, cache, "org/two")
    own = [(one["revision"], one["refs"]) for one in listed(shell, cache)]
    assert sorted(own) == sorted([(first, []), (later.name, ["main"])])
    path = shell.out("adopt", cache, f"org/two@{first[:8]}", "--as", "two").rstrip("\n")
    assert bodies(Path(path)) == MODEL
    assert bodies(later) == LATER
    assert sound(cache) == {"org/two": 1}
    shell.out("adopt", cache, "org/two")
    assert sound(cache) == {}


def test_keeping_changes_nothing_there_or_says_why_not(hub: Hub, cache: Path, shell: Shell) -> None:
    hub.push("org/kept", MODEL)
    snapshot = download(hub, cache, "org/kept")
    path = shell.out("adopt", cache, "org/kept", "--keep", "--copy", "--check").rstrip("\n")
    assert bodies(Path(path)) == MODEL == bodies(snapshot)
    assert sound(cache) == {"org/kept": 1}


def test_what_is_not_whole_is_told_and_refused(hub: Hub, cache: Path, shell: Shell) -> None:
    hub.push("org/a", MODEL)
    hub.push("org/b", MODEL)
    hub.push("org/c", MODEL)
    shard = "model-00002-of-00002.safetensors"
    (download(hub, cache, "org/a") / shard).resolve().unlink()
    download(hub, cache, "org/b", ignore_patterns=[shard])
    (download(hub, cache, "org/c").parents[1] / "blobs" / "ab.cd.incomplete").touch()
    told = {one["repository"]: one for one in listed(shell, cache)}
    assert [told[f"org/{one}"]["whole"] for one in "abc"] == [False] * 3
    assert told["org/a"]["faults"] == [f"{shard} is missing: the blob is gone"]
    assert told["org/b"]["faults"] == [f"{shard} of model.safetensors.index.json is not there"]
    assert told["org/c"]["faults"] == ["1 download of the repository was broken off"]
    for one in "abc":
        ran = shell("adopt", cache, f"org/{one}")
        assert ran.returncode == Exit.ERROR
        assert "it is not whole" in ran.stderr
        assert "--partial takes it as it is" in ran.stderr
    assert sorted(bodies(Path(shell.out("adopt", cache, "org/b", "--partial").strip()))) == sorted(
        MODEL.keys() - {shard}
    )


def test_a_small_file_that_is_not_what_it_is_called(hub: Hub, cache: Path, shell: Shell) -> None:
    hub.push("org/bad", MODEL)
    snapshot = download(hub, cache, "org/bad")
    (snapshot / "config.json").resolve().write_bytes(b"[]")
    ran = shell("adopt", cache, "org/bad")
    assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
    assert "it is not what it is called; remove it, and fetch config.json" in ran.stderr
    assert (snapshot / "config.json").exists()
    # A large one is believed, unless it is to be checked.
    (snapshot / "config.json").resolve().write_bytes(MODEL["config.json"])
    place = (snapshot / "model-00001-of-00002.safetensors").resolve()
    place.write_bytes(b"x" * 40_000)
    before = bodies(snapshot)
    ran = shell("adopt", cache, "org/bad", "--check")
    assert ran.returncode == Exit.ERROR
    assert "The sha256 of 'model-00001-of-00002.safetensors' is" in ran.stderr
    assert bodies(snapshot) == before


def test_what_is_asked_for_has_to_be_there(hub: Hub, cache: Path, shell: Shell) -> None:
    hub.push("org/m", MODEL)
    download(hub, cache)
    for wanted, words in (
        ("org/nothing", "there is no org/nothing in it; list it"),
        ("org/m@v9", "org/m has no one revision v9 in it; it has"),
    ):
        ran = shell("adopt", cache, wanted)
        assert ran.returncode == Exit.ERROR
        assert words in ran.stderr
    ran = shell("adopt", cache / "models--org--m")
    assert "it is one repository; name the cache" in ran.stderr
    (cache / "models--org--m" / "snapshots" / "x").mkdir()
    (cache / "models--org--m" / "snapshots" / "x" / "passwd").symlink_to("/etc/passwd")
    told = next(one for one in listed(shell, cache) if one["revision"] == "x")
    assert told["faults"] == ["passwd is missing: the blob is gone"]


# -- A directory ------------------------------------------------------------------------


def test_a_directory_is_adopted_by_the_hashes_that_are_known(
    hub: Hub, shell: Shell, tmp_path: Path
) -> None:
    """Of a download to a directory, and of a list by sha256sum; what is listed wrong shows."""
    from huggingface_hub import snapshot_download

    hub.push("org/local", MODEL)
    place = tmp_path / "local"
    snapshot_download("org/local", endpoint=hub.url, local_dir=place)
    path = shell.out("put", "local/one", place, "--adopt").rstrip("\n")
    assert bodies(Path(path)) == MODEL
    assert os.listdir(place) == [".cache"]

    other = tmp_path / "other"
    (other / "deep").mkdir(parents=True)
    (other / "deep" / "weights").write_bytes(b"w" * 5000)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{'ab' * 32}  other/deep/weights\n")
    ran = shell("put", "local/two", other, "--adopt", "--sha256sums", sums, "--check")
    assert (ran.returncode, os.listdir(other)) == (Exit.ERROR, ["deep"])
    assert "The sha256 of 'deep/weights' is" in ran.stderr
    told = json.loads(
        shell.out("put", "local/two", other, "--adopt", "--sha256sums", sums, "--json")
    )
    assert told["files"][0]["sha256"] == "ab" * 32
    assert not other.exists()


@pytest.mark.needs("sha256sum")
def test_a_list_as_sha256sum_writes_it(shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "listed"
    place.mkdir()
    (place / "a b").write_bytes(b"1")
    (place / "c").write_bytes(b"2")
    summed = subprocess.run(
        ["sha256sum", "--binary", "a b", "c"], cwd=place, capture_output=True, check=True
    )
    (tmp_path / "sums").write_bytes(summed.stdout)
    given = ("put", "listed", place, "--adopt", "--sha256sums")
    (tmp_path / "wrong").write_text("nonsense\n")
    assert "line 1 is not as sha256sum writes it" in shell(*given, tmp_path / "wrong").stderr
    (tmp_path / "others").write_text(f"{'0' * 64}  nothing\n")
    assert "it lists no file of" in shell(*given, tmp_path / "others").stderr
    assert bodies(Path(shell.out(*given, tmp_path / "sums").strip())) == {"a b": b"1", "c": b"2"}


def test_what_goes_with_adoption_is_said(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    for flags in (("--keep",), ("--adopt", "--create-only")):
        ran = shell("put", "flags", tmp_path / "x", *flags)
        assert ran.returncode == Exit.USAGE
        assert "--adopt" in ran.stderr
    (tmp_path / "link").symlink_to(tmp_path / "x")
    ran = shell("put", "flags", tmp_path, "--adopt")
    assert ran.returncode == Exit.ERROR
    assert "link: it is a link, and what it points at may be another's" in ran.stderr
    assert (tmp_path / "x").read_bytes() == b"x"
