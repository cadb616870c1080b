"""An adoption whose daemon, or whose caller, is killed half way: no file is ever lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.cli.commands import Shell
from tests.polling import until
from tests.system.daemon import Daemon, running
from weightd.client import Client
from weightd.client.faults import LeftMidway

CAPACITY: Final = 400_000_000
FILES: Final = {"config.json": b"{}", "deep/weights": b"w" * 50_000, "weights": b"v" * 60_000}
KEY: Final = "org/m"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    for path, body in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(body)
        (place / path).chmod(0o640)
    return place


def there(home: Path) -> dict[str, tuple[bytes, int]]:
    """Every file that is where it was: its content, its mode."""
    return {
        str(one.relative_to(home)): (one.read_bytes(), one.stat().st_mode & 0o777)
        for one in home.rglob("*")
        if one.is_file()
    }


WHOLE: Final = {path: (body, 0o640) for path, body in FILES.items()}


def models(daemon: Daemon) -> list[str]:
    return [one["key"] for one in daemon.client.get("/v1/models")["models"]]


def dies(root: Path, home: Path, failpoint: str) -> None:
    """Adopt until the daemon is killed, and say what became of it."""
    with running(root, capacity=CAPACITY, failpoint=failpoint) as daemon:
        with Client(daemon.socket, patience=0.1) as client, pytest.raises(LeftMidway) as left:
            client.adopt(KEY, home)
        assert daemon.ended() == -signal.SIGKILL, daemon.said()
    assert "Nothing is lost: start it" in left.value.detail


@pytest.mark.parametrize("failpoint", ["adopt.moved:2", "publish.parent-flushed"])
def test_a_daemon_that_comes_back_is_asked_again(root: Path, home: Path, failpoint: str) -> None:
    """Whether it had given everything back, or had published and not said so."""
    with running(root, capacity=CAPACITY, failpoint=failpoint) as daemon:
        shell = Shell(daemon.socket)
        with shell.running("put", KEY, home, "--adopt") as process:
            assert daemon.ended() == -signal.SIGKILL, daemon.said()
            with running(root, capacity=CAPACITY) as later:
                told, said = process.communicate(timeout=60)
                assert process.returncode == 0, said
                assert models(later) == [KEY]
    assert not home.exists()
    place = Path(told.rstrip("\n"))
    assert {path: (place / path).read_bytes() for path in FILES} == FILES


def test_everything_is_back_at_the_next_start(root: Path, home: Path) -> None:
    dies(root, home, "adopt.moved:2")
    assert len(there(home)) < len(FILES)
    with running(root, capacity=CAPACITY) as daemon:
        assert models(daemon) == []
        assert there(home) == WHOLE
        until(lambda: not os.listdir(root / "incoming"))
        assert daemon.stop() == 0


def test_what_somebody_took_the_place_of_stays_until_it_is_free(root: Path, home: Path) -> None:
    dies(root, home, "publish.manifest-flushed")
    assert there(home) == {}
    (home / "weights").write_bytes(b"another")
    for _ in range(2):
        with running(root, capacity=CAPACITY) as daemon:
            (left,) = os.listdir(root / "incoming")
            assert daemon.client.status()["foreign"] == [f"incoming/{left}"]
            assert f"{home / 'weights'} could not be given back" in daemon.said()
            assert (root / "incoming" / left / "m" / "weights").read_bytes() == FILES["weights"]
            assert there(home) == WHOLE | {"weights": (b"another", 0o644)}
            assert daemon.stop() == 0
    (home / "weights").unlink()
    with running(root, capacity=CAPACITY) as daemon:
        assert there(home) == WHOLE
        until(lambda: not os.listdir(root / "incoming"))
        assert daemon.stop() == 0


def test_a_caller_that_is_killed_changes_nothing(root: Path, home: Path) -> None:
    """The daemon goes on to the end, whichever that is."""
    with (home / "weights").open("wb") as file:
        file.truncate(200_000_000)
    with running(root, capacity=CAPACITY) as daemon:
        with Shell(daemon.socket).running("put", KEY, home, "--adopt") as process:
            until(lambda: os.listdir(root / "incoming"), daemon.said)
            process.kill()
        until(lambda: models(daemon) == [KEY], daemon.said)
        (found,) = daemon.client.get("/v1/models")["models"]
        assert (Path(found["path"]) / "weights").stat().st_size == 200_000_000
        assert there(home) == {}
        until(lambda: daemon.client.status()["reserved_bytes"] == 0)
        assert daemon.stop() == 0
