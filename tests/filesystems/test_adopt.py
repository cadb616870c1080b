"""A user's files on each kind of filesystem: renamed, or their blocks shared where they can be."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

import pytest

from tests.filesystems.disks import KINDS, MB, available, kind_of, run
from tests.filesystems.test_copies import SHARING
from tests.polling import until
from tests.system.daemon import Answer, Daemon, running

LARGE: Final = 120 * MB
SIZE: Final = 48 * MB + 1234
MIN_FREE: Final = 100 * MB


def adopt(daemon: Daemon, places: list[Path], key: str = "org/m", **more: object) -> Answer:
    files = [
        {"path": one.name, "place": str(one), "bytes": one.stat().st_size, **more} for one in places
    ]
    body = json.dumps({"key": key, "files": files}).encode()
    return daemon.client.call("POST", "/v1/adopt", body, {"Content-Type": "application/json"})


def write(place: Path, size: int = SIZE) -> bytes:
    place.parent.mkdir(exist_ok=True)
    content = os.urandom(size)
    place.write_bytes(content)
    return content


def test_what_has_to_stay_is_shared_or_refused(disk: Path) -> None:
    """Renamed where it may go; where it stays, never one file under two names."""
    kept, named, gone = disk / "home/kept", disk / "home/named", disk / "home/gone"
    contents = {one.name: write(one) for one in (kept, named, gone)}
    os.link(named, disk / "home/other")
    os.sync()
    before = available(disk)
    with running(disk / "root", capacity=200 * MB) as daemon:
        answer = adopt(daemon, [named, gone])
        if kind_of(disk) not in SHARING:
            detail = answer.json()["detail"]
            assert f"file {named}: it stays, since it has 2 names" in detail
            assert gone.exists()
            answer = adopt(daemon, [kept], keep=True)
            assert f"file {kept}: it stays, since it is to be kept" in answer.json()["detail"]
            answer = adopt(daemon, [gone])
            assert (answer.status, gone.exists()) == (201, False)
            assert daemon.stop() == 0
            return
        assert answer.status == 201, answer
        assert (named.exists(), gone.exists()) == (True, False)
        place = Path(answer.json()["path"])
        assert adopt(daemon, [kept], "org/kept", keep=True).status == 201
        for name in ("named", "gone"):
            assert (place / name).read_bytes() == contents[name]
        assert before - available(disk) < SIZE // 4
        # Whoever writes to his own changes nothing that is published.
        with named.open("r+b") as file:
            file.write(b"another")
        assert (place / "named").read_bytes() == contents["named"]
        assert daemon.stop() == 0


def test_a_disk_that_is_nearly_full_takes_what_it_has(disk: Path) -> None:
    """The bytes are on it already: only the budget has to have room for them."""
    place = disk / "home" / "weights"
    write(place, LARGE)
    options = ("--min-free", str(MIN_FREE))
    with running(disk / "root", capacity=200 * MB, options=options) as daemon:
        verdict: Any = daemon.client.admission(LARGE)
        assert verdict["verdict"] == "disk-full"
        answer = adopt(daemon, [place])
        assert answer.status == 201, answer
        assert daemon.client.status()["others_bytes"] < 32 * MB
        assert daemon.stop() == 0


@pytest.mark.parametrize("disk", KINDS[1:2], indirect=True)
def test_through_another_mount_of_the_same_filesystem(disk: Path, tmp_path: Path) -> None:
    """The kernel renames nothing between two mounts: it says so, and nothing has moved."""
    place = disk / "home" / "weights"
    content = write(place, MB)
    bound = tmp_path / "bound"
    bound.mkdir()
    run("mount", "--bind", str(disk / "home"), str(bound))
    try:
        with running(disk / "root", capacity=200 * MB) as daemon:
            answer = adopt(daemon, [bound / "weights"])
            assert answer.status == 400
            assert "weightd may not rename it here (Invalid cross-device" in answer.json()["detail"]
            assert place.read_bytes() == content
            assert daemon.stop() == 0
    finally:
        run("umount", str(bound))


def test_directories_are_seen_as_they_are(disk: Path) -> None:
    """btrfs tells through a descriptor nothing that came after it was opened."""
    place = disk / "home" / "weights"
    content = write(place, MB)
    with running(disk / "root", capacity=200 * MB) as daemon:
        files = [{"path": "a/b/weights", "place": str(place), "bytes": MB}]
        record = post(daemon, "/v1/adopt", {"key": "adopted", "files": files})
        assert (Path(record["path"]) / "a/b/weights").read_bytes() == content
        files = [{"path": "a/b/weights", "bytes": MB}]
        upload = post(daemon, "/v1/uploads", {"key": "uploaded", "files": files})
        (Path(upload["path"]) / "a/b/weights").write_bytes(content)
        record = post(daemon, f"/v1/uploads/{upload['id']}/commit", {})
        for path in ("", "a", "a/b"):
            assert stat.S_IMODE((Path(record["path"]) / path).stat().st_mode) == 0o555
        upload = post(daemon, "/v1/uploads", {"key": "left", "files": files})
        (Path(upload["path"]) / "a/b/weights").write_bytes(content)
        daemon.kill()
    with running(disk / "root", capacity=200 * MB) as daemon:
        until(
            lambda: (
                not any(any((disk / "root" / name).iterdir()) for name in ("incoming", "doomed"))
            )
        )
        assert daemon.stop() == 0


def post(daemon: Daemon, path: str, asked: object) -> Any:
    headers = {"Content-Type": "application/json"}
    answer = daemon.client.call("POST", path, json.dumps(asked).encode(), headers)
    assert answer.status == 201, answer
    return answer.json()
