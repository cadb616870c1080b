"""Sockets that systemd passes: taken for what they are, kept open, and handed over whole."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemon.crowd import MODEL, Crowd
from tests.daemon.notified import manager
from tests.daemon.passing import activated, listening
from tests.polling import until
from tests.system.daemon import Client
from tests.system.nursery import HERE, bare_environment
from weightd.daemon.activation import FIRST, Passed, take_passed
from weightd.daemon.listeners import BACKLOG
from weightd.daemon.places import passed_otherwise, take_doors
from weightd.daemon.refusal import StartRefused
from weightd.settings import load

CAPACITY = 4096 * 2500
CLIENTS = 200
RESTARTS = 2

PASSED = """
import json, os, sys
from weightd.daemon.activation import take_passed
from weightd.daemon.refusal import StartRefused
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    passed = take_passed(os.environ, os.getpid())
except StartRefused as error:
    print(json.dumps(list(error.problems)))
else:
    left = [name for name in os.environ if name.startswith("LISTEN_")]
    inherited = [os.get_inheritable(one.fileno()) for one in passed.sockets.values()]
    print(json.dumps([sorted(passed.sockets), left, inherited]))
"""


def take(names: str, *passed: int) -> list[object]:
    """What a process makes of descriptors that are passed to it under ``names``."""
    script = f"import os\nfor at, one in enumerate({list(passed)}): os.dup2(one, 50 + at)\n"
    script += f"for at in range({len(passed)}): os.dup2(50 + at, {FIRST} + at)\n" + PASSED
    told = {"LISTEN_FDS": str(len(passed)), "LISTEN_FDNAMES": names}
    said = subprocess.run(
        [sys.executable, "-c", script],
        env=bare_environment() | told,
        cwd=HERE,
        pass_fds=passed,
        capture_output=True,
        check=True,
    )
    found: list[object] = json.loads(said.stdout)
    return found


@pytest.fixture
def unix(tmp_path: Path) -> Iterator[socket.socket]:
    with listening(tmp_path / "passed.sock") as door:
        yield door


@pytest.fixture
def tcp() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as door:
        yield door


# -- What is passed is what it claims ---------------------------------------------------


def test_each_is_taken_by_its_name_and_no_child_inherits_it(
    unix: socket.socket, tcp: socket.socket
) -> None:
    assert take("listen:admin", tcp.fileno(), unix.fileno()) == [
        ["admin", "listen"],
        [],
        [False, False],
    ]


def test_everything_that_is_wrong_is_told_at_once(
    unix: socket.socket, tcp: socket.socket, tmp_path: Path
) -> None:
    with ExitStack() as held:
        bound = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        bound.bind(str(tmp_path / "deaf.sock"))
        datagrams = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        abstract = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        abstract.bind("\0" + os.urandom(8).hex())
        abstract.listen()
        file = held.enter_context((tmp_path / "file").open("w"))
        wrong = (
            ("weightd.socket", unix.fileno(), "is no door's name; FileDescriptorName= is admin, "),
            ("admin", tcp.fileno(), "it is no unix socket; give ListenStream= a path"),
            ("admin", bound.fileno(), "nobody listens on it; make it with ListenStream= and "),
            ("replica", datagrams.fileno(), "it is no stream socket; "),
            ("replica", abstract.fileno(), "is no path, and clients look for one"),
            ("listen", unix.fileno(), "it is no TCP listener; "),
            ("listen", file.fileno(), "it is not a socket; "),
            ("api", tcp.fileno(), None),
            ("api", tcp.fileno(), "another socket has that name; pass one for each door"),
        )
        said = take(":".join(name for name, _, _ in wrong), *(number for _, number, _ in wrong))
    lines = [line for line in said if isinstance(line, str)]
    expected = [
        (f"descriptor {FIRST + at} ({name}): ", reason)
        for at, (name, _, reason) in enumerate(wrong)
        if reason is not None
    ]
    assert len(lines) == len(expected), lines
    for line, (begin, reason) in zip(lines, expected, strict=True):
        assert line.startswith(begin)
        assert reason in line


@pytest.mark.parametrize("count", ["-1", "one", "99999", "²"])
def test_a_count_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(StartRefused, match="LISTEN_FDS"):
        take_passed({"LISTEN_FDS": count, "LISTEN_PID": "7"}, 7)


def test_what_is_meant_for_another_process_is_left_alone_and_not_passed_on() -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": "8", "LISTEN_FDNAMES": "admin", "HOME": "/"}
    assert not take_passed(environ, 7).sockets
    assert environ == {"HOME": "/"}


def test_the_whole_api_is_not_opened_without_a_token(tcp: socket.socket, tmp_path: Path) -> None:
    problems: list[str] = []
    with ExitStack() as held:
        settings = load({"socket": str(tmp_path / "w.sock"), "listen": "none"}).settings
        assert take_doors(settings, Passed({"api": tcp}), held, problems) is None
    (line,) = problems
    assert "token_file" in line


def test_a_door_that_is_not_where_its_setting_says_is_told_of(
    unix: socket.socket, tmp_path: Path
) -> None:
    with ExitStack() as held:
        settings = load({"socket": str(tmp_path / "elsewhere.sock"), "listen": "none"}).settings
        places = take_doors(settings, Passed({"admin": unix}), held, [])
        assert places is not None
        (line,) = passed_otherwise(settings, places)
        assert unix.getsockname() in line
        assert str(tmp_path / "elsewhere.sock") in line
    # It is whoever passed it that removes its name.
    assert (tmp_path / "passed.sock").is_socket()


def test_of_a_default_that_is_not_used_nothing_is_told(unix: socket.socket, tmp_path: Path) -> None:
    with ExitStack() as held:
        settings = load({"socket": str(tmp_path / "w.sock"), "listen": "none"}).settings
        places = take_doors(settings, Passed({"replica": unix}), held, [])
        assert places is not None
        assert passed_otherwise(settings, places) == []
        off = settings.model_copy(update={"replica_socket": None})
        (line,) = passed_otherwise(off, places)
        assert "replica_socket" in line


# -- A daemon that is given them ----------------------------------------------------------


def test_a_passed_listener_that_the_network_reaches_is_as_careful_as_a_bound_one(
    root: Path, tmp_path: Path
) -> None:
    """What decides is where it is bound, and not what the setting says."""
    with (
        socket.create_server(("0.0.0.0", 0)) as door,  # its own address decides
        activated(
            root, {"listen": door}, capacity=CAPACITY, options=("--listen", "127.0.0.1:9")
        ) as daemon,
    ):
        with socket.create_connection(("127.0.0.1", door.getsockname()[1]), timeout=60) as peer:
            peer.sendall(b"GET /v1/status HTTP/1.0\r\n\r\n")
            assert b" 403 " in peer.recv(100)
        assert daemon.stop() == 0


@pytest.mark.needs("systemd-socket-activate")
def test_the_first_call_starts_it(root: Path, tmp_path: Path) -> None:
    door = tmp_path / "w.sock"
    command = ["systemd-socket-activate", "-l", str(door), "--fdname", "admin"]
    command += [sys.executable, "-m", "weightd", "serve", "--root", str(root)]
    command += ["--socket", str(door), "--capacity", str(CAPACITY), "--listen", "none"]
    with manager(tmp_path) as watched:
        environ = bare_environment() | watched.environ
        # It passes on what -E names, and nothing else.
        command[1:1] = [word for name in watched.environ for word in ("-E", name)]
        with subprocess.Popen(command, cwd=HERE, env=environ, stderr=subprocess.DEVNULL) as process:
            try:
                until(door.is_socket)
                assert Client(door).status()["models"] == 0
                assert watched.hears("READY=1")["STATUS"].startswith("ready: 0 models, 0 B of ")
                process.send_signal(signal.SIGTERM)
                assert watched.hears("STOPPING=1")["STATUS"].startswith("draining")
                assert process.wait(60) == 0
            finally:
                process.kill()
    assert door.is_socket()


# -- The handing over ---------------------------------------------------------------------


def ask(peer: socket.socket, method: str, target: str, connection: str = "keep-alive") -> None:
    """Ask on a connection."""
    fields = f"Host: w\r\nContent-Length: 0\r\nConnection: {connection}\r\n"
    peer.sendall(f"{method} {target} HTTP/1.1\r\n{fields}\r\n".encode())


def answer(peer: socket.socket) -> str:
    """Read a connection to its end."""
    said = b""
    while more := peer.recv(4096):
        said += more
    return said.decode()


@contextmanager
def connected(place: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(60)
        peer.connect(str(place))
        yield peer


def test_who_is_connected_already_is_answered_and_told_to_connect_anew(
    root: Path, tmp_path: Path
) -> None:
    place = tmp_path / "w.sock"
    early = {
        ("PUT", "/v1/pins/late/m"): 201,
        ("PUT", "/v1/models/late"): 201,
        ("GET", "/v1/models/m"): 200,
        ("GET", "/readyz"): 503,
    }
    with (
        listening(place) as door,
        manager(tmp_path) as watched,
        activated(root, {"admin": door}, capacity=CAPACITY, environ=watched.environ) as daemon,
        ExitStack() as held,
    ):
        assert daemon.client.call("PUT", "/v1/models/m", b"weights").status == 201
        peers = [held.enter_context(connected(place)) for _ in early]
        silent = held.enter_context(connected(place))
        # Once a later one was answered, those before it have been taken.
        assert daemon.client.status()["state"] == "ready"
        daemon.process.send_signal(signal.SIGTERM)
        watched.hears("READY=1")
        assert int(watched.hears("STOPPING=1")["EXTEND_TIMEOUT_USEC"]) > 25_000_000
        # All at once: each has a moment, however long the others take.
        for peer, asked in zip(peers, early, strict=True):
            ask(peer, *asked)
        for peer, status in zip(peers, early.values(), strict=True):
            said = answer(peer).lower()
            assert said.startswith(f"http/1.1 {status} "), said
            assert "\r\nconnection: close\r\n" in said
        # Told so, they know that nobody else is taken here any more.
        later = held.enter_context(connected(place))
        # Who says nothing does not keep it, and is told so; who came later waits for the next.
        assert silent.recv(1) == b""
        assert daemon.ended() == 0
        with activated(root, {"admin": door}, capacity=CAPACITY) as following:
            ask(later, "GET", "/v1/models/m", "close")
            assert answer(later).startswith("HTTP/1.1 200 ")
            assert [one["holder"] for one in following.client.get("/v1/pins")["pins"]] == ["late"]


async def test_a_restart_refuses_nobody_and_loses_no_pin(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "w.sock"

    with listening(place) as door, ExitStack() as held:
        begin = activated(root, {"admin": door}, capacity=CAPACITY)
        daemon = await asyncio.to_thread(held.enter_context, begin)
        answer = await asyncio.to_thread(daemon.client.call, "PUT", f"/v1/models/{MODEL}", b"w")
        assert answer.status == 201
        crowd = Crowd(place)
        async with crowd.about(CLIENTS):
            for _ in range(RESTARTS):
                await crowd.answered(2 * CLIENTS)
                # SIGTERM, and its end, before the next begins.
                assert await asyncio.to_thread(daemon.stop) == 0
                await asyncio.to_thread(held.close)
                begin = activated(root, {"admin": door}, capacity=CAPACITY)
                daemon = await asyncio.to_thread(held.enter_context, begin)
            await crowd.answered(CLIENTS)
        assert crowd.refused == []
        pins = await asyncio.to_thread(daemon.client.get, "/v1/pins")
        assert {pin["holder"] for pin in pins["pins"]} == crowd.pinned
        assert len(crowd.pinned) == CLIENTS
