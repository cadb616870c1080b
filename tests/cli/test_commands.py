"""Each command: what it prints, for people and for programs, and how it exits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.cli.commands import Shell
from tests.cli.conftest import CAPACITY
from tests.polling import until
from tests.system.daemon import Client, Daemon, running
from weightd.cli.exits import Exit
from weightd.units import format_bytes


def put(client: Client, key: str, size: int = 3) -> str:
    answer = client.call("PUT", f"/v1/models/{key}?file=weights", bytes(size))
    assert answer.status in (200, 201), answer
    return str(answer.json()["path"])


# -- Models ---------------------------------------------------------------------------


def test_get_prints_the_path_and_nothing_else(daemon: Daemon, shell: Shell) -> None:
    path = put(daemon.client, "get/one@v1")
    ran = shell("get", "get/one@v1")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{path}\n", "")
    told = json.loads(shell.out("get", "get/one@v1", "--json"))
    assert (told["key"], told["path"], told["hits"]) == ("get/one@v1", path, 2)


def test_get_of_a_miss_exits_3(shell: Shell) -> None:
    ran = shell("get", "get/nothing")
    assert (ran.returncode, ran.stdout) == (Exit.NOT_RESIDENT, "")
    assert ran.stderr == (
        "weightd: get/nothing is not on this node. Put it, or fetch it from its origin.\n"
    )


def test_get_tells_the_path_of_another_mount(daemon: Daemon, tmp_path: Path) -> None:
    put(daemon.client, "get/mounted")
    mount = tmp_path / "mnt"
    mount.symlink_to(daemon.root)
    shell = Shell(daemon.socket, {"WEIGHTD_ROOT": str(mount)})
    path = shell.out("get", "get/mounted").rstrip("\n")
    assert path.startswith(f"{mount}/models/")
    assert json.loads(shell.out("get", "get/mounted", "--json"))["path"] == path
    wrong = Shell(daemon.socket, {"WEIGHTD_ROOT": str(tmp_path)})("get", "get/mounted")
    assert wrong.returncode == Exit.ERROR
    assert f"Mount the daemon's {daemon.root}" in wrong.stderr


def test_put_and_ls_and_rm(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "weights").write_bytes(bytes(1_500_000))
    path = shell.out("put", "list/dir", tmp_path).rstrip("\n")
    assert sorted(os.listdir(path)) == ["config.json", "weights"]
    file = shell.out("put", "list/file@v1", tmp_path / "weights", "--file", "m.gguf")
    assert os.listdir(file.rstrip("\n")) == ["m.gguf"]
    told = json.loads(shell.out("put", "list/file@v1", tmp_path / "weights", "--json"))
    assert told["file"].endswith("/weights")

    titles, *rows, total = shell.out("ls", "list/*").splitlines()
    assert titles.split()[:2] == ["KEY", "SIZE"]
    assert [row.split()[:3] for row in rows] == [
        ["list/dir", "1.5", "MB"],
        ["list/file@v1", "1.5", "MB"],
    ]
    assert total == "2 models, 3 MB"
    assert shell.out("ls", "-q", "list/file").split() == ["list/file@v1"]
    listed = json.loads(shell.out("ls", "--json", "list/*", "--sort", "size"))["models"]
    assert [one["key"] for one in listed] == ["list/dir", "list/file@v1"]
    assert shell.out("ls", "no/*") == "no model here matches\n"

    ran = shell("rm", "list/dir", "list/nothing", "list/file@v1")
    assert ran.returncode == Exit.NOT_RESIDENT
    assert shell.out("ls", "-q", "list/*") == ""
    last = json.loads(shell.out("evictions", "--json", "-n", "2"))["evictions"]
    assert [(one["key"], one["reason"]) for one in last] == [
        ("list/dir", "request"),
        ("list/file@v1", "request"),
    ]
    assert "asked for" in shell.out("evictions", "-n", "1")
    assert len(shell.out("evictions", "-n", "1").splitlines()) == 2
    assert len(shell.out("evictions", "-n", "0").splitlines()) > 2


def test_put_says_what_is_wrong_with_what_it_is_given(shell: Shell, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    ran = shell("put", "put/nothing", nothing)
    assert ran.returncode == Exit.ERROR
    assert ran.stderr == f"weightd: {nothing}: No such file or directory.\n"
    (tmp_path / "file").write_text("x")
    ran = shell("put", "put/file", tmp_path / "file", "--sha256", "0" * 64)
    assert ran.returncode == Exit.ERROR
    assert f"not {'0' * 64}" in ran.stderr
    assert shell("put", "put/file", tmp_path / "file", "--create-only").returncode == 0
    ran = shell("put", "put/file", tmp_path / "file", "--create-only")
    assert "already here with digest" in ran.stderr
    assert ran.stderr.endswith("Leave out --create-only to replace it.\n")


def test_warm_says_how_much_is_in_memory(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "tests/warm", 10_000)
    said = shell.out("warm", "tests/warm")
    assert said == "tests/warm: 10 kB of 10 kB are in memory\n"
    (told,) = json.loads(shell.out("warm", "--json", "tests/warm"))["warmed"]
    assert told == {"key": "tests/warm", "bytes": 10_000, "cached": 10_000}
    ran = shell("warm", "tests/not-here", "tests/warm")
    assert ran.returncode == Exit.NOT_RESIDENT
    assert ran.stdout.startswith("tests/warm: ")


WAYS = ("put m {file}", "fetch m file://{file} -q", "run m --from file://{file} -q -- cat {{path}}")
"""How a model may be asked for that is not here."""


@pytest.mark.parametrize("way", WAYS)
def test_too_large_and_blocked_are_two_exits(daemon: Daemon, shell: Shell, way: str) -> None:
    large = daemon.root.parent / "origins" / "large"
    command = way.format(file=large).split()
    with large.open("wb") as file:
        file.truncate(CAPACITY + 1)
    ran = shell(*command)
    assert (ran.returncode, ran.stdout) == (Exit.TOO_LARGE, "")
    assert f"> {CAPACITY} bytes). Raise the capacity" in ran.stderr
    put(daemon.client, "put/kept", CAPACITY // 2)
    shell.out("pin", "put/kept", "--holder", "replica:1")
    with large.open("wb") as file:
        file.truncate(CAPACITY // 2 + 1_000_000)
    ran = shell(*command)
    assert (ran.returncode, ran.stdout) == (Exit.BLOCKED, "")
    assert "Held by replica:1 (put/kept)" in ran.stderr
    assert "(--wait DURATION does)" in ran.stderr
    shell.out("unpin", "put/kept", "--holder", "replica:1")
    shell.out("rm", "put/kept")


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100_000))
    options = ("--min-free", "100%", "--import-roots", str(tmp_path))
    with running(tmp_path / "cache", capacity=10**15, options=options) as daemon:
        for way in WAYS:
            ran = Shell(daemon.socket)(*way.format(file=tmp_path / "file").split())
            assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
            assert "Free space on the filesystem" in ran.stderr


def test_a_damaged_model_is_a_miss_and_is_journalled(daemon: Daemon, shell: Shell) -> None:
    damaged = Path(put(daemon.client, "damaged/one", 5000), "weights")
    damaged.chmod(0o644)
    damaged.write_bytes(b"other")
    # What was just looked at is believed for some seconds.
    until(lambda: shell("get", "damaged/one").returncode == Exit.NOT_RESIDENT)
    [line] = [one for one in shell.out("evictions").splitlines() if "damaged/one" in one]
    assert "damaged" in line.split("damaged/one")[1]
    # Other tests may have damaged some before.
    assert re.search(r"\d damaged model", shell.out("status"))


# -- Pins -----------------------------------------------------------------------------


def test_pins_are_taken_shown_and_let_go(daemon: Daemon, shell: Shell) -> None:
    path = put(daemon.client, "pins/one")
    assert shell.out("pin", "pins/one", "--holder", "replica:1", "--ttl", "1h") == f"{path}\n"
    told = json.loads(shell.out("pin", "pins/one", "--ttl", "forever", "--json"))
    holder = told["holder"]
    assert holder.startswith("cli:")
    shown = [line.split() for line in shell.out("pins").splitlines() if "pins/one" in line]
    assert [line[3:5] for line in shown] == [["pin", holder], ["pin", "replica:1"]]
    assert shown[0][-1] == "forever"
    assert shown[1][-1].startswith("5") or shown[1][-1] == "1h"
    pins = json.loads(shell.out("pins", "--json"))["pins"]
    assert {one["holder"] for one in pins if one["key"] == "pins/one"} == {holder, "replica:1"}
    ran = shell("rm", "pins/one")
    assert ran.returncode == Exit.ERROR
    assert "is pinned by" in ran.stderr
    assert shell.out("unpin", "pins/one") == ""
    assert shell.out("unpin", "pins/one", "--holder", "replica:1", "--json")
    ran = shell("unpin", "pins/one")
    assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
    assert "there is nothing to let go" in ran.stderr
    assert Shell(daemon.socket, {"WEIGHTD_HOLDER": "mine"})("pin", "pins/one").returncode == 0
    shell.out("unpin", "pins/one", "--holder", "mine")


@pytest.mark.needs("flock")
def test_a_hold_is_shown_with_its_process(daemon: Daemon, shell: Shell) -> None:
    path = put(daemon.client, "pins/held")
    with subprocess.Popen(["flock", "--no-fork", "-s", path, "sleep", "600"]) as holder:
        try:
            until(lambda: "pins/held" in shell.out("pins"))
            [line] = [line for line in shell.out("pins").splitlines() if "pins/held" in line]
            assert line.split()[3] == "hold"
            shown = shell.out("status")
            assert "held" in shown
        finally:
            holder.kill()


def test_the_name_of_a_process_commands_no_terminal(daemon: Daemon, shell: Shell) -> None:
    path = put(daemon.client, "pins/named")
    program = (
        "import ctypes, fcntl, os, sys, time\n"
        "ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH)\n"
        "time.sleep(600)\n"
    )
    name = "\x1b[2J漢字"
    with subprocess.Popen([sys.executable, "-c", program, path, name]) as holder:
        try:
            until(lambda: f"  \\x1b[2J漢字 ({holder.pid})  " in shell.out("pins"))
            for environment in ({}, {"PYTHONIOENCODING": "ascii"}):
                told = json.loads(Shell(daemon.socket, environment).out("pins", "--json"))["pins"]
                assert [one["process"] for one in told if one["key"] == "pins/named"] == [name]
        finally:
            holder.kill()


# -- Fetches ----------------------------------------------------------------------------


def test_fetches_are_followed_listed_and_ended(daemon: Daemon, shell: Shell) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=bytes(100_000))
        ran = shell("fetch", "fetched/one", source)
        assert ran.returncode == 0, ran.stderr
        assert os.listdir(ran.stdout.rstrip("\n")) == ["weights"]
        assert ran.stderr.splitlines()[-1] == "weightd: fetched/one: done, 100 kB"
        quiet = shell("fetch", "fetched/one", source, "-q", "--json")
        assert (json.loads(quiet.stdout)["key"], quiet.stderr) == ("fetched/one", "")

        origin.flowing.clear()
        id = shell.out("fetch", "fetched/slow", source, "--detach").rstrip("\n")
        [row] = [line for line in shell.out("fetch", "--list").splitlines() if id in line]
        assert row.split()[:3] == [id, "fetched/slow", "downloading"]
        told = json.loads(shell.out("fetch", "--list", "--json"))["fetches"]
        assert {one["key"] for one in told} >= {"fetched/one", "fetched/slow"}
        assert "downloading" in shell.out("top")
        assert shell.out("fetch", "--cancel", id, "--json")
        origin.flowing.set()
    ran = shell("fetch", "--cancel", "0123")
    assert ran.returncode == Exit.ERROR
    assert "There is no fetch '0123'" in ran.stderr


def test_a_fetch_that_fails_says_the_origins_words(shell: Shell) -> None:
    with http_origin() as origin:
        source = f"{origin.url}/nothing.json"
        ran = shell("fetch", "fetched/not", source)
    assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
    assert source in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "given", [(), ("a",), ("a", "b", "--ttl", "1h"), ("a", "b", "--ttl", "x", "--holder", "h")]
)
def test_a_fetch_of_nothing_is_a_usage_error(shell: Shell, given: tuple[str, ...]) -> None:
    ran = shell("fetch", *given)
    assert ran.returncode == Exit.USAGE
    assert "usage: weightd fetch KEY SOURCE" in ran.stderr


# -- The node ---------------------------------------------------------------------------


def test_status_shows_the_budget_by_who_occupies_it(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        shell = Shell(daemon.socket)
        put(daemon.client, "idle", 5_000_000)
        put(daemon.client, "pinned", 5_000_000)
        shell.out("pin", "pinned")
        said = shell.out("status").splitlines()
    assert said[0].startswith("weightd ")
    assert f"budget  {format_bytes(CAPACITY)} ({CAPACITY} bytes)" in said
    bar = said[3].strip()
    assert len(bar) == 72
    assert [bar.count(mark) for mark in "▓▒·"] == [18, 18, 36]
    parts = {line.split()[1]: line.split()[2:4] for line in said[4:7]}
    assert parts == {"pinned": ["5", "MB"], "idle": ["5", "MB"], "free": ["10", "MB"]}


def test_status_is_what_the_daemon_says(daemon: Daemon, shell: Shell) -> None:
    assert set(json.loads(shell.out("status", "--json"))) == set(daemon.client.status())
    told = json.loads(shell.out("top", "--json"))
    assert set(told) == {"status", "fetches", "pins", "models"}


def test_the_replicas_socket_will_do_for_what_is_theirs(daemon: Daemon) -> None:
    put(daemon.client, "replica/one")
    replica = Shell(daemon.root.parent / "replica.sock")
    assert replica.out("get", "replica/one")
    assert "budget" in replica.out("status")
    ran = replica("rm", "replica/one")
    assert ran.returncode == Exit.ERROR
    assert str(daemon.socket) in ran.stderr
