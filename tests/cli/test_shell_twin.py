"""`deploy/weightd-run.sh`: what `weightd run` does, by curl and flock alone."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.api.origin import http_origin
from tests.cli.commands import HERE, Shell, first_line
from tests.cli.test_run import pins, put
from tests.system.daemon import Daemon
from weightd.cli.exits import Exit

SCRIPT: Final = HERE / "deploy" / "weightd-run.sh"

pytestmark = pytest.mark.needs("curl", "flock")


class Twin(Shell):
    """The script, by a shell of its own."""

    interpreter: tuple[str, ...] = ("sh",)

    def argv(self, *given: str | Path) -> list[str]:
        return [*self.interpreter, str(SCRIPT), *map(str, given)]


@pytest.fixture
def twin(daemon: Daemon) -> Twin:
    return Twin(daemon.socket)


def test_the_model_stays_for_as_long_as_the_command(daemon: Daemon, twin: Twin) -> None:
    path = put(daemon.client, "twin/stays")
    script = 'echo "$WEIGHTD_PATH $WEIGHTD_KEY $1"; exec sleep 600'
    given = ("twin/stays", "--", "sh", "-c", script, "name", "a{path}b{path}")
    with twin.running(*given) as process:
        assert first_line(process) == f"{path} twin/stays a{path}b{path}"
        assert pins(daemon.client, "twin/stays") == ["hold"]
        assert daemon.client.call("DELETE", "/v1/models/twin/stays").status == 409
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
        assert daemon.client.call("DELETE", "/v1/models/twin/stays").status == 204


def test_what_is_not_here_is_fetched(twin: Twin) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=b"fetched")
        ran = twin("twin/fetched", "--from", source, "--", "cat", "{path}/weights")
    assert (ran.returncode, ran.stdout) == (0, "fetched"), ran.stderr


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ((), Exit.USAGE, "no KEY"),
        (("a b",), Exit.USAGE, "is not a key"),
        (("m", "--from"), Exit.USAGE, "no SOURCE"),
        (("m",), Exit.USAGE, "no --"),
        (("m", "-m", "a=b", "--", "cat", "{path}"), Exit.USAGE, "-m is not known here"),
        (("m", "--"), Exit.USAGE, "no COMMAND"),
        (("m", "--", "no-such-command", "{path}"), Exit.USAGE, "no command no-such-command"),
        (("m", "--", "true"), Exit.USAGE, "{path} is nowhere"),
        (("twin/nothing", "--", "cat", "{path}"), Exit.NOT_RESIDENT, "Put it, or fetch it"),
        (
            ("m", "--from", "x://y", "--", "cat", "{path}"),
            Exit.ERROR,
            "source: there is no origin x://",
        ),
    ],
)
def test_it_exits_as_weightd_does(twin: Twin, given: tuple[str, ...], code: int, said: str) -> None:
    ran = twin(*given)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr


def test_a_curl_that_is_too_old_is_no_daemon_that_is_away(
    twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "curl"
    old.write_text("#!/bin/sh\nexit 2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ran = twin("twin/nothing", "--", "cat", "{path}")
    assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
    assert "7.76" in ran.stderr


def test_without_a_daemon_it_says_so(tmp_path: Path) -> None:
    ran = Twin(tmp_path / "no.sock")("m", "--", "cat", "{path}")
    assert ran.returncode == Exit.UNREACHABLE
    assert ran.stderr == (
        f"weightd-run.sh: no daemon answers at {tmp_path}/no.sock; start it, or name its socket in "
        "WEIGHTD_SOCKET\n"
    )


@pytest.mark.needs("root", "setpriv")
def test_a_socket_that_may_not_be_opened_says_which_may() -> None:
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    with TemporaryDirectory() as name:
        # The directories of pytest, and perhaps that of this clone, are not for others.
        os.chmod(name, 0o755)
        script = shutil.copy(SCRIPT, name)
        with socket.socket(socket.AF_UNIX) as listening:
            place = os.path.join(name, "weightd.sock")
            listening.bind(place)
            os.chmod(place, 0o600)
            ran = subprocess.run(
                [*nobody, "sh", script, "m", "--", "cat", "{path}"],
                env={"PATH": os.environ["PATH"], "WEIGHTD_SOCKET": place},
                capture_output=True,
                text=True,
                check=False,
            )
    assert ran.returncode == Exit.UNREACHABLE
    assert f"this user may not open {place}; name the daemon's --replica-socket" in ran.stderr


@pytest.mark.needs("root", "unshare")
def test_a_directory_that_is_not_here_is_told_and_its_pin_let_go(
    daemon: Daemon, twin: Twin
) -> None:
    put(daemon.client, "twin/elsewhere")
    run = shlex.join(twin.argv("twin/elsewhere", "--", "cat", "{path}"))
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {daemon.root} && exec {run}"],
        env=twin.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
    assert f"mount the daemon's {daemon.root} at the same place, or at one that" in ran.stderr
    assert pins(daemon.client, "twin/elsewhere") == []


@pytest.mark.needs("root", "unshare")
def test_a_root_that_is_mounted_elsewhere_is_named(
    daemon: Daemon, twin: Twin, tmp_path: Path
) -> None:
    path = put(daemon.client, "twin/moved")
    there = tmp_path / path.relative_to(daemon.root)
    moved = f"mount --bind {daemon.root} {tmp_path} && mount -t tmpfs none {daemon.root}"
    run = shlex.join(twin.argv("twin/moved", "--", "cat", "{path}/weights", "{path}"))
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{moved} && exec {run}"],
        env=twin.environment | {"WEIGHTD_ROOT": f"{tmp_path}/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "weights", ran.stderr
    assert str(there) in ran.stderr
    assert "pin" not in pins(daemon.client, "twin/moved")


def test_another_directory_is_not_taken_for_the_root(
    daemon: Daemon, twin: Twin, tmp_path: Path
) -> None:
    put(daemon.client, "twin/other")
    other = Twin(daemon.socket, {"WEIGHTD_ROOT": str(tmp_path)})
    ran = other("twin/other", "--", "cat", "{path}")
    assert (ran.returncode, ran.stdout) == (Exit.ERROR, "")
    assert f"{tmp_path}/models/" in ran.stderr
    assert "pin" not in pins(daemon.client, "twin/other")


@pytest.mark.parametrize("shell", [("bash", "--posix"), ("dash",), ("busybox", "sh")])
def test_it_is_for_every_shell(daemon: Daemon, shell: tuple[str, ...]) -> None:
    if not any(os.access(Path(place, shell[0]), os.X_OK) for place in os.get_exec_path()):
        pytest.skip(f"cannot be had everywhere: {shell[0]}")
    twin = Twin(daemon.socket)
    object.__setattr__(twin, "interpreter", shell)
    put(daemon.client, "twin/shells")
    assert twin.out("twin/shells", "--", "cat", "{path}/weights") == "weights"


def test_it_may_be_run_as_it_is() -> None:
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run(["sh", "-n", SCRIPT], check=True)
