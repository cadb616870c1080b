"""What every command does alike: no daemon, no permission, nobody who reads on, no UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.commands import HERE, Shell
from tests.cli.conftest import CAPACITY
from tests.cli.test_commands import put
from tests.system.daemon import Daemon, running
from weightd.cli.exits import Exit
from weightd.cli.main import COMMANDS, main


def every_command(place: Path) -> list[list[str]]:
    """A line for each command that asks a daemon."""
    (place / "file").write_text("x")
    told = {
        "run": "run m -- cat {path}",
        "get": "get m",
        "put": f"put m {place}/file",
        "fetch": "fetch m https://weights.invalid/m.json",
        "pin": "pin m",
        "unpin": "unpin m",
        "rm": "rm m",
        "verify": "verify m",
        "warm": "warm m",
    }
    here = [name for name in COMMANDS if name not in ("serve", "completion", "adopt", "label")]
    lines = [told.get(name, name).split() for name in here]
    return [[line[0], "--socket", "SOCKET", *line[1:]] for line in lines]


def test_without_a_daemon_every_command_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "no.sock")
    for line in every_command(tmp_path):
        code = main([place if one == "SOCKET" else one for one in line])
        printed = capsys.readouterr()
        assert (code, printed.out) == (Exit.UNREACHABLE, ""), line
        assert printed.err == (
            f"weightd: No daemon answers at {place} (No such file or directory). Start it "
            "(weightd serve, or systemctl start weightd), or say where its socket is (--socket "
            "or WEIGHTD_SOCKET).\n"
        ), line


@pytest.mark.needs("root")
def test_a_socket_that_may_not_be_opened_says_who_may() -> None:
    program = (
        "import importlib, os, pkgutil, sys\n"
        "import difflib, encodings.ascii, grp, json, textwrap, weightd.client, weightd.cli\n"
        "for package in (weightd.client, weightd.cli):\n"
        "    for one in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(one.name)\n"
        "from weightd.cli.main import main\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    print(main(line), file=sys.stderr)\n"
    )
    with TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        with running(Path(name, "cache"), capacity=CAPACITY) as daemon:
            lines = [
                [str(daemon.socket) if one == "SOCKET" else one for one in line]
                for line in every_command(Path(name))
            ]
            ran = subprocess.run(
                [sys.executable, "-c", program, json.dumps(lines)],
                capture_output=True,
                text=True,
                check=False,
                cwd=HERE,
            )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    told = ran.stderr.splitlines()
    assert told[1::2] == [str(int(Exit.UNREACHABLE))] * len(lines), told
    for line in told[::2]:
        assert f"This user may not open {daemon.socket} (Permission denied)" in line
        assert "--replica-socket" in line


@pytest.mark.parametrize("command", ["ls", "status", "ls --json"])
def test_a_pipe_that_is_closed_early_is_no_error(
    daemon: Daemon, shell: Shell, command: str
) -> None:
    put(daemon.client, "pipe/one")
    read, written = os.pipe()
    os.close(read)
    ran = subprocess.run(
        shell.argv(*command.split()),
        stdin=subprocess.DEVNULL,
        stdout=written,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=shell.environment,
    )
    os.close(written)
    assert (ran.returncode, ran.stderr) == (Exit.OK, "")


def test_what_cannot_be_written_is_an_error(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "pipe/two")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            shell.argv("ls"),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=shell.environment,
        )
    assert ran.returncode == Exit.ERROR
    assert ran.stderr == "weightd: the output cannot be written: No space left on device\n"


def test_a_terminal_of_ascii_is_enough(daemon: Daemon) -> None:
    put(daemon.client, "ascii/one")
    shell = Shell(daemon.socket, {"PYTHONIOENCODING": "ascii"})
    for command in ("ls", "status", "top", "pins"):
        assert shell.out(command).isascii()
