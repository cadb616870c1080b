"""The units as they are, under a real systemd: ready, watched, activated, restarted, stopped.

The tests share one container, and each leaves the service running with its settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.booted.image import build
from tests.booted.machine import Machine, booted
from tests.daemon.crowd import MODEL, Crowd
from tests.polling import until
from tests.system.daemon import GONE

pytestmark = [
    pytest.mark.needs("root", "debootstrap", "systemd-nspawn", "nsenter", "strace"),
    pytest.mark.timeout(600),
]

CLIENTS = 200
RESTARTS = 5
SETTINGS = "etc/weightd/weightd.toml"

WATCHED = "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=2s\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    place = tmp_path_factory.mktemp("machine")
    with booted(build(place), place / "console") as running:
        yield running


@contextmanager
def settings(machine: Machine, text: str) -> Iterator[None]:
    """A settings file while the context is entered; nobody is told of it."""
    place = machine.files / SETTINGS
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    try:
        yield
    finally:
        place.unlink()


@pytest.fixture(autouse=True)
def as_many_starts_as_there_are_tests(machine: Machine) -> None:
    """Ten in five minutes are all that a unit has."""
    machine.run("systemctl", "reset-failed", "weightd", code=None)


def put(machine: Machine, key: str, content: bytes = b"weights") -> None:
    assert machine.client().call("PUT", f"/v1/models/{key}", content).status in (200, 201)


# -- Ready -------------------------------------------------------------------------------


def test_it_is_ready_and_says_how_it_does(machine: Machine) -> None:
    assert machine.run("systemctl", "is-system-running").strip() == "running"
    assert machine.told("ActiveState") == "active"
    assert machine.told("StatusText").startswith("ready: ")
    status = machine.client().status()
    assert status["state"] == "ready"
    banner = machine.journal("-o", "cat")
    assert "socket    /run/weightd/weightd.sock (the whole API)" in banner
    assert "listener  http://127.0.0.1:9777 " in banner
    assert "is not used" not in banner
    assert "root      /var/cache/weightd\n" in banner


def test_the_running_unit_is_as_closed_as_its_file_says(machine: Machine) -> None:
    said = machine.run("systemd-analyze", "security", "--threshold=15", "weightd.service")
    assert "Overall exposure level for weightd.service: 1.5 OK" in said


def test_what_it_does_it_does_in_the_sandbox(machine: Machine) -> None:
    client = machine.client()
    put(machine, "org/sandboxed@v1", b"w" * 100_000)
    record = client.get("/v1/models/org/sandboxed@v1")
    file = record["file"] or f"{record['path']}/{record['files'][0]['path']}"
    # Somebody else reads it and holds it, and is named.
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    reads = f"sh -c 'cat {file} | wc -c; read _'"
    holds = f"exec {' '.join(as_nobody)} flock -s {record['path']} {reads}"
    with subprocess.Popen(
        machine.enters("sh", "-c", holds), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "100000"
        assert client.call("DELETE", "/v1/models/org/sandboxed@v1").status == 409
        # The next look, in the background, names him.
        until(lambda: [one["process"] for one in client.get("/v1/pins")["pins"]] == ["flock"])
        holder.communicate("over\n")
    assert client.status()["in_use_detection"]["leases"] is True
    assert client.call("POST", "/v1/warm/org/sandboxed@v1").status == 200
    assert client.call("POST", "/v1/verify/org/sandboxed@v1").status == 200
    assert client.call("DELETE", "/v1/models/org/sandboxed@v1").status == 204
    # Listeners are reached from the container's own network, which has no other.
    said = machine.run(
        "python3",
        "-c",
        "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9777/metrics').status)",
    )
    assert said.strip() == "200"


def test_a_group_of_files_is_given_to_them(machine: Machine) -> None:
    machine.drop_in("[Service]\nSupplementaryGroups=video\nEnvironment=WEIGHTD_GROUP=video\n")
    try:
        machine.run("systemctl", "restart", "weightd")
        put(machine, "grouped", b"of video's")
        path = machine.client().get("/v1/models/grouped")["path"]
        assert "video" in machine.run("sh", "-c", f"stat -c %G {path}/*")
    finally:
        machine.no_drop_in()
        machine.run("systemctl", "restart", "weightd")


def test_it_fetches_from_where_it_may_read(machine: Machine) -> None:
    (machine.files / "srv/model").mkdir(parents=True)
    (machine.files / "srv/model/model.gguf").write_bytes(b"w" * 10_000_000)
    source = {"key": "imported", "source": "file:///srv/model"}
    with settings(machine, 'import_roots = ["/srv"]\n'):
        machine.run("systemctl", "reload", "weightd")
        until(lambda: "value=/srv" in machine.journal("-n", "5"), machine.journal)
        fetched = machine.client().call(
            "POST",
            "/v1/fetch?wait=60",
            json.dumps(source).encode(),
            {"Content-Type": "application/json"},
        )
        assert fetched.status == 200, fetched
    assert fetched.json()["bytes"] == 10_000_000
    machine.run("systemctl", "reload", "weightd")


def test_the_group_of_a_socket_is_its_units(machine: Machine) -> None:
    """A start of the service leaves it as it is, in a directory that is the service's."""
    stop = ("systemctl", "stop", "weightd.socket", "weightd-listen.socket", "weightd")
    machine.drop_in("[Socket]\nSocketGroup=video\n", "weightd.socket")
    try:
        machine.run(*stop)
        machine.run("systemctl", "start", "weightd")
        said = machine.run("stat", "-c", "%U:%G %a", "/run/weightd/weightd.sock")
        assert said.strip() == "weightd:video 660"
    finally:
        machine.no_drop_in("weightd.socket")
        machine.run(*stop)
        machine.run("systemctl", "start", "weightd")


# -- The watchdog ---------------------------------------------------------------------------


@pytest.fixture
def watched(machine: Machine) -> Iterator[Machine]:
    machine.drop_in(WATCHED)
    try:
        machine.run("systemctl", "restart", "weightd")
        yield machine
    finally:
        machine.no_drop_in()
        machine.run("systemctl", "restart", "weightd")


def test_a_daemon_that_does_not_turn_is_ended_and_begun_again(watched: Machine) -> None:
    put(watched, "kept")
    assert watched.client().call("PUT", "/v1/pins/replica/kept").status in (200, 201)
    before, restarts = watched.main_process(), int(watched.told("NRestarts"))
    os.kill(before, signal.SIGSTOP)
    until(lambda: int(watched.told("NRestarts")) > restarts, watched.journal)
    # Who calls meanwhile waits for the next.
    assert [one["holder"] for one in watched.client().get("/v1/pins")["pins"]] == ["replica"]
    assert watched.main_process() != before
    assert "Watchdog timeout" in watched.journal()
    assert watched.client().call("DELETE", "/v1/pins/replica/kept").status == 204


def test_a_disk_that_fails_is_not_fed_for(watched: Machine) -> None:
    before, restarts = watched.main_process(), int(watched.told("NRestarts"))
    inject = ["-e", "trace=fsync", "-e", "inject=fsync:error=EIO"]
    command = ["strace", "-f", "-o", "/dev/null", *inject, "-p", str(before)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
        try:
            until(lambda: watched.told("StatusText").startswith("unwell: "), watched.journal)
            until(lambda: int(watched.told("NRestarts")) > restarts, watched.journal)
        finally:
            tracer.send_signal(signal.SIGINT)
    assert watched.client().status()["state"] == "ready"
    said = watched.journal("-o", "cat")
    assert "unwell: a small flushed write in /var/cache/weightd failed: Input/output error" in said
    assert "Fatal Python error: Aborted" in said


# -- Restarts and stops ---------------------------------------------------------------------


async def test_a_restart_refuses_nobody_and_loses_no_pin(machine: Machine) -> None:
    await asyncio.to_thread(put, machine, MODEL)
    crowd = Crowd(machine.client().socket)
    async with crowd.about(CLIENTS):
        for _ in range(RESTARTS):
            await crowd.answered(5 * CLIENTS)
            await asyncio.to_thread(machine.run, "systemctl", "restart", "weightd")
            await asyncio.to_thread(machine.run, "systemctl", "reset-failed", "weightd")
        await crowd.answered(5 * CLIENTS)
    assert crowd.refused == []
    pins = await asyncio.to_thread(machine.client().get, "/v1/pins")
    assert {pin["holder"] for pin in pins["pins"]} == crowd.pinned
    assert len(crowd.pinned) == CLIENTS
    for holder in crowd.pinned:
        call = machine.client().call
        assert (await asyncio.to_thread(call, "DELETE", f"/v1/pins/{holder}/{MODEL}")).status == 204
    said = f"{crowd.calls} calls of {CLIENTS} clients over {RESTARTS} restarts, none refused\n"
    sys.stdout.write(said)


def test_a_kill_refuses_nobody_who_comes_after_it(machine: Machine) -> None:
    os.kill(machine.main_process(), signal.SIGKILL)
    assert machine.client().status()["state"] == "ready"


def test_a_stop_lets_a_put_finish_and_a_call_begins_it_again(machine: Machine) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(60)
        peer.connect(str(machine.client().socket))
        head = b"PUT /v1/models/slow HTTP/1.1\r\nHost: w\r\nContent-Length: 1000\r\n"
        peer.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 100")
        peer.sendall(b"w" * 500)
        with subprocess.Popen(machine.enters("systemctl", "stop", "weightd")) as stopping:
            until(lambda: machine.told("StatusText").startswith("draining"))
            assert machine.told("ActiveState") == "deactivating"
            peer.sendall(b"w" * 500)
            assert peer.recv(4096).startswith(b"HTTP/1.1 201")
            assert stopping.wait(60) == 0
    assert machine.told("ActiveState") == "inactive"
    assert machine.told("Result") == "success"
    assert (machine.files / "run/weightd/weightd.sock").is_socket()
    keys = [one["key"] for one in machine.client().get("/v1/models")["models"]]
    assert "slow" in keys
    assert machine.told("ActiveState") == "active"


def test_the_runtime_directory_outlives_a_restart(machine: Machine) -> None:
    """Containers have it mounted, and would keep one that is gone."""
    before = (machine.files / "run/weightd").stat()
    machine.run("systemctl", "restart", "weightd")
    after = (machine.files / "run/weightd").stat()
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    assert after.st_mode & 0o777 == 0o755


# -- Settings -------------------------------------------------------------------------------


def test_a_reload_reads_them_and_wrong_ones_fail_it(machine: Machine) -> None:
    with settings(machine, 'capacity = "1GB"\n'):
        machine.run("systemctl", "reload", "weightd")
        until(lambda: machine.client().status()["capacity_bytes"] == 10**9, machine.journal)
    with settings(machine, 'capacity = "much"\nlog_level = "loud"\n'):
        machine.run("systemctl", "reload", "weightd", code=1)
    said = machine.journal("-o", "cat")
    assert "capacity" in said.rsplit("Reloading", 1)[-1]
    assert machine.told("ActiveState") == "active"
    assert machine.client().status()["capacity_bytes"] == 10**9
    machine.run("systemctl", "reload", "weightd")


def test_a_reload_leaves_the_services_credentials_to_it(machine: Machine) -> None:
    """What checks the settings at a reload may not read them."""
    (machine.files / "etc/weightd/token").write_text("t" * 64)
    machine.drop_in(
        "[Service]\nLoadCredential=token:/etc/weightd/token\n"
        "Environment=WEIGHTD_TOKEN_FILE=%d/token WEIGHTD_CREDENTIALS=hub=%d/token\n"
    )
    try:
        machine.run("systemctl", "restart", "weightd")
        machine.run("systemctl", "reload", "weightd")
    finally:
        machine.no_drop_in()
        machine.run("systemctl", "restart", "weightd")


def test_it_comes_back_after_wrong_ones_were_mended(machine: Machine) -> None:
    with settings(machine, 'capacity = "much"\n'):
        machine.run("systemctl", "restart", "weightd", code=1)
        assert machine.told("ActiveState") == "failed"
        assert machine.told("ExecMainStatus") == "2"
        # Who calls begins it again, and again, until it has been begun ten times.
        with pytest.raises(GONE):
            machine.client().status()
        until(lambda: machine.told("ActiveState", "weightd.socket") == "failed", machine.journal)
    machine.run("systemctl", "reset-failed", "weightd*")
    said = machine.run("systemctl", "restart", "weightd", code=None)
    assert said == "", machine.journal("-n", "40")
    assert machine.client().status()["state"] == "ready"


def test_lines_have_their_priorities(machine: Machine) -> None:
    """Those of the watchdog's tests, which say that something is wrong, and all others."""
    lines = [json.loads(line) for line in machine.journal("-o", "json").splitlines()]
    of_the_daemon = [one for one in lines if one.get("_COMM") == "weightd"]
    by_message = {str(one["MESSAGE"]): one["PRIORITY"] for one in of_the_daemon}
    (unwell,) = {one for message, one in by_message.items() if "unwell: " in message}
    (drains,) = {one for message, one in by_message.items() if "draining" in message}
    assert (unwell, drains) == ("3", "6")


# -- More than one root -----------------------------------------------------------------------


def test_another_root_is_another_instance(machine: Machine) -> None:
    place = machine.files / "etc/weightd/fast.toml"
    place.parent.mkdir(exist_ok=True)
    place.write_text('capacity = "1GB"\nlisten = "127.0.0.1:9778"\n')
    machine.run("systemctl", "start", "weightd@fast")
    status = machine.client("weightd-fast").status()
    assert status["capacity_bytes"] == 10**9
    assert status["root"] == "/var/cache/weightd-fast"
    assert machine.client("weightd-fast").call("PUT", "/v1/models/m", b"w").status == 201
    machine.run("systemctl", "restart", "weightd@fast")
    assert machine.client("weightd-fast").status()["models"] == 1
    said = machine.run("systemd-analyze", "security", "--threshold=15", "weightd@fast.service")
    assert "1.5 OK" in said
    machine.run("systemctl", "stop", "weightd@fast.socket", "weightd@fast")


def test_the_replicas_socket_is_there_when_it_is_enabled(machine: Machine) -> None:
    machine.run("systemctl", "enable", "weightd-replica.socket")
    machine.run("systemctl", "restart", "weightd")
    # It failed with the service, and nobody but the service's start has it back.
    machine.run("systemctl", "stop", "weightd-replica.socket")
    machine.run("systemctl", "restart", "weightd")
    code = (
        "import http.client, socket; c = http.client.HTTPConnection('w'); "
        "c.sock = socket.socket(socket.AF_UNIX); c.sock.connect('/run/weightd/replica.sock'); "
        "c.request('PUT', '/v1/pins/mine/slow'); print(c.getresponse().status)"
    )
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert machine.run(*as_nobody, "python3", "-c", code).strip() == "201"
    (pin,) = machine.client().get("/v1/pins")["pins"]
    assert pin["holder"] == "mine"
    machine.run("systemctl", "disable", "--now", "weightd-replica.socket")
