"""What the daemon refuses to start on, what it says when it starts, and who may start it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

import weightd
from tests.daemon.notified import manager
from tests.system.daemon import Client, Process, running
from tests.system.nursery import WEIGHTD, bare_environment, nursery

CAPACITY = 10_000_000
HOUSE = Path(weightd.__file__).parents[1]
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def refused(root: Path, *options: str, prefix: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Start a daemon that is expected to refuse; its exit code and the lines it said why."""
    arguments = ["serve", "--root", str(root), "--socket", str(root.parent / "other.sock")]
    arguments += ["--listen", "none", *options]
    process: Process
    with TemporaryFile() as stderr:
        if prefix:
            command = [*prefix, sys.executable, "-m", "weightd", *arguments]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, cwd=HOUSE)
        else:
            process = nursery().spawn(WEIGHTD, arguments, bare_environment(), stderr.fileno())
        assert process.stdout is not None
        try:
            code = process.wait(60)
        finally:
            process.kill()
        with process.stdout:
            assert process.stdout.read() == b""
        stderr.seek(0)
        lines = stderr.read().decode().splitlines()
    assert "Traceback" not in "".join(lines)
    return code, lines


@contextmanager
def serving(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[tuple[int, list[str]]]:
    """Run a command that becomes the daemon; yield its pid and banner; end it gracefully."""
    kept = {"PATH": os.environ["PATH"]}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=HOUSE, env={**kept, **environ}
    ) as daemon:
        assert daemon.stdout is not None
        said: list[str] = []
        try:
            while not said or not said[-1].startswith("  try "):
                line = daemon.stdout.readline()
                assert line, f"ended before it was ready: {said}"
                said.append(line.rstrip("\n"))
            yield daemon.pid, said
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0


def told(banner: Sequence[str], what: str) -> str:
    """What the banner says on one of its lines."""
    return next(line[12:] for line in banner if line.startswith(f"  {what:<10}"))


def everybody_reaches(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (path, *path.parents))


@pytest.fixture
def nobodys(tmp_path: Path) -> Path:
    """A directory that the unprivileged user owns and reaches."""
    if not everybody_reaches(HOUSE) or not everybody_reaches(Path(sys.prefix)):
        pytest.skip("cannot be had: this checkout or its Python is closed to other users")
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o711)
    place = tmp_path / "nobodys"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    return place


# -- It starts -------------------------------------------------------------------------


@pytest.mark.needs("root", "unshare")
def test_as_root_without_arguments() -> None:
    """In a mount namespace of its own, so that the defaults touch nothing of this machine."""
    mounts = "mount -t tmpfs none /var/cache && mount -t tmpfs none /run"
    command = ["unshare", "--mount", "sh", "-c"]
    command.append(f"{mounts} && exec {sys.executable} -m weightd serve")
    with serving(command, {"WEIGHTD_LISTEN": "127.0.0.1:0"}) as (pid, banner):
        assert told(banner, "root") == "/var/cache/weightd"
        assert told(banner, "socket").startswith("/run/weightd/weightd.sock ")
        inside = Path(f"/proc/{pid}/root/run/weightd/weightd.sock")
        assert stat.S_IMODE(inside.stat().st_mode) == 0o660
        assert stat.S_IMODE(inside.parent.stat().st_mode) == 0o755
        assert Client(inside).status()["state"] == "ready"


@pytest.mark.needs("root", "setpriv")
def test_as_a_user_without_arguments(nobodys: Path) -> None:
    environ = {"HOME": str(nobodys), "WEIGHTD_LISTEN": "127.0.0.1:0"}
    environ["XDG_RUNTIME_DIR"] = str(nobodys)
    command = [*AS_NOBODY, sys.executable, "-m", "weightd", "serve"]
    with serving(command, environ) as (_, banner):
        assert told(banner, "root") == str(nobodys / ".cache" / "weightd")
        client = Client(nobodys / "weightd" / "weightd.sock")
        assert client.call("PUT", "/v1/models/m", b"weights").status == 201
        assert client.call("PUT", "/v1/models/m", b"other weights").status == 201
        assert client.call("DELETE", "/v1/models/m").status == 204


def test_the_banner_says_where_everything_is(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    door = tmp_path / "weightd.sock"
    command = [sys.executable, "-m", "weightd", "serve", "--root", str(root)]
    command += ["--socket", str(door), "--listen", "127.0.0.1:0"]
    command += ["--capacity", "1.5GiB", "--min-free", "1MB"]
    with serving(command, {}) as (_, banner):
        assert told(banner, "root") == str(root)
        assert told(banner, "models") == "0 found, 0 B (0 bytes)"
        assert told(banner, "budget") == "1.6 GB (1610612736 bytes)"
        assert told(banner, "min free") == "1 MB (1000000 bytes) stay free on the filesystem"
        assert told(banner, "socket") == f"{door} (the whole API)"
        assert "'notes.txt'" in told(banner, "note")
        address = told(banner, "listener").split()[0].removeprefix("http://")
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as peer:
            peer.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            assert b" 200 " in peer.recv(100)
        assert told(banner, "try") == f"curl --unix-socket {door} http://localhost/v1/status"
    assert (root / "notes.txt").read_text() == "mine"


@pytest.mark.needs("curl")
def test_the_call_to_try_works(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        url = "http://localhost/v1/status"
        tried = subprocess.run(
            ["curl", "-sf", "--unix-socket", str(daemon.socket), url],
            capture_output=True,
            check=True,
        )
        assert b'"ready"' in tried.stdout


def test_json_log_says_the_same_as_fields(root: Path, tmp_path: Path) -> None:
    options = ("--log-format", "json")
    with (
        manager(tmp_path) as watched,
        running(
            root, capacity=CAPACITY, options=options, environ=watched.environ, ready=False
        ) as daemon,
    ):
        watched.hears("READY=1")
        (ready,) = [line for line in daemon.said().splitlines() if '"message": "ready"' in line]
        assert json.loads(ready)["root"] == str(root)
        assert daemon.stop() == 0


def test_listener_on_the_network_answers_for_health_and_metrics_only(root: Path) -> None:
    command = [sys.executable, "-m", "weightd", "serve", "--root", str(root), "--capacity", "1MB"]
    command += ["--socket", str(root.parent / "w.sock"), "--listen", "0.0.0.0:0"]
    with serving(command, {}) as (_, banner):
        port = int(told(banner, "listener").split()[0].rpartition(":")[2])
        statuses = {}
        for path in ("/metrics", "/healthz", "/readyz", "/v1/status", "/v1/models"):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
                peer.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                statuses[path] = int(peer.recv(20).split()[1])
    assert statuses == {
        "/metrics": 200,
        "/healthz": 200,
        "/readyz": 200,
        "/v1/status": 403,
        "/v1/models": 403,
    }


# -- It refuses -------------------------------------------------------------------------


def test_second_daemon_on_the_directory(root: Path) -> None:
    with running(root, capacity=CAPACITY) as first:
        code, (line,) = refused(root)
        assert code == 1
        assert str(root) in line
        assert str(first.process.pid) in line
        assert first.client.status()["state"] == "ready"


def test_second_daemon_on_the_socket(root: Path, tmp_path: Path) -> None:
    with running(root, capacity=CAPACITY) as first:
        code, (line,) = refused(tmp_path / "second", "--socket", str(first.socket))
        assert code == 1
        assert f"another process answers on {first.socket}" in line
        assert first.client.status()["state"] == "ready"


def test_newer_format(root: Path) -> None:
    root.mkdir()
    (root / "FORMAT").write_text("2\n")
    code, (line,) = refused(root)
    assert code == 1
    assert "format 2" in line
    assert (root / "FORMAT").read_text() == "2\n"


@pytest.mark.needs("root", "setpriv")
def test_root_that_this_user_may_not_write(nobodys: Path, root: Path) -> None:
    root.mkdir()
    root.chmod(0o755)
    door = str(nobodys / "w.sock")
    code, (line,) = refused(root, "--socket", door, prefix=AS_NOBODY)
    assert code == 1
    assert str(root) in line
    assert "ermission denied" in line
    assert list(root.iterdir()) == []


@pytest.mark.needs("root", "setpriv")
@pytest.mark.parametrize("check", [(), ("--check",)])
def test_root_below_a_directory_that_this_user_may_not_pass(
    nobodys: Path, tmp_path: Path, check: tuple[str, ...]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    options = ("--socket", str(nobodys / "w.sock"), *check)
    code, (line,) = refused(closed / "x", *options, prefix=AS_NOBODY)
    assert code == 2
    assert line.startswith(f"weightd: root: {closed / 'x'} cannot be reached")


def test_everything_in_the_way_is_told_at_once(root: Path, tmp_path: Path) -> None:
    root.write_text("a file")
    door = tmp_path / "taken"
    door.write_text("a file too")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, lines = refused(root, "--socket", str(door), "--listen", address)
    assert code == 1
    assert len(lines) == 3
    assert str(root) in lines[0]
    assert "is not a socket" in lines[1]
    assert address in lines[2]
    assert (root.read_text(), door.read_text()) == ("a file", "a file too")


def test_bad_settings_are_told_at_once_and_nothing_is_made(root: Path) -> None:
    code, lines = refused(root, "--capacity", "0", "--socket-mode", "9", "--log-level", "loud")
    assert code == 2
    assert [line.split()[1] for line in lines] == ["capacity", "socket_mode", "log_level"]
    assert not root.exists()


def test_failpoint_that_does_not_exist(root: Path) -> None:
    code, lines = refused(root, prefix=("env", "WEIGHTD_FAILPOINT=publish.typo"))
    assert code == 1
    assert len(lines) == 1
    assert "publish.typo" in lines[0]
