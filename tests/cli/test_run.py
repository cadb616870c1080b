"""`weightd run`: the model is there and stays for as long as the command, whatever happens."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.cli.commands import Shell, first_line
from tests.cli.conftest import CAPACITY
from tests.polling import until
from tests.system.daemon import Client, Daemon, running
from weightd.cli.exits import Exit
from weightd.cli.main import main

ECHO = (sys.executable, "-c", "import sys; print(*sys.argv[1:], sep='\\n')")

STAY = "import sys; print('ready', flush=True); sys.stdin.close(); import time; time.sleep(600)"
"""A command that says it runs, and stays."""

READER = """
import mmap, os, sys, time
path = os.path.join(sys.argv[1], "weights")
with open(path, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
before = mapped[:]
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    assert mapped[:] == before
    time.sleep(0.01)
with open(path, "rb") as file:
    assert file.read() == before
print("same", flush=True)
"""


def put(client: Client, key: str, body: bytes = b"weights", file: str = "weights") -> Path:
    answer = client.call("PUT", f"/v1/models/{key}?file={file}", body)
    assert answer.status in (200, 201), answer
    return Path(answer.json()["path"])


def pins(client: Client, key: str) -> list[str]:
    """What keeps a model: pin, hold or use."""
    return [one["kind"] for one in client.get("/v1/pins")["pins"] if one["key"] == key]


def test_the_command_is_told_where_everything_is(daemon: Daemon, shell: Shell) -> None:
    base = put(daemon.client, "told/base@v1")
    lora = put(daemon.client, "told/lora")
    ran = shell(
        *("run", "told/base@v1", "-m", "the-lora=told/lora", "--"),
        *ECHO,
        *("--model={path}", "{file}", "{name}", "{path:the-lora}", "{path}:{path}", '{"a": {}}'),
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"--model={base}",
        f"{base}/weights",
        "told/base",
        str(lora),
        f"{base}:{base}",
        '{"a": {}}',
    ]
    # The lease was for the start; nothing of it is left.
    until(lambda: not pins(daemon.client, "told/base@v1"))


def test_the_environment_is_told_too(daemon: Daemon, shell: Shell) -> None:
    path = put(daemon.client, "environment/base")
    lora = put(daemon.client, "environment/lora")
    script = 'echo "$WEIGHTD_PATH $WEIGHTD_KEY $WEIGHTD_PATH_LORA $WEIGHTD_KEY_LORA"'
    said = shell.out(
        *("run", "environment/base", "-m", "lora=environment/lora", "--", "sh", "-c", script)
    )
    assert said.split() == [str(path), "environment/base", str(lora), "environment/lora"]
    # A script may read it where nobody sees that from here.
    assert shell("run", "environment/base", "--", "true").returncode == Exit.USAGE
    assert shell("run", "environment/base", "--by-environment", "--", "true").returncode == 0


def test_a_hold_is_none_of_the_commands_own_streams(
    daemon: Daemon, shell: Shell, tmp_path: Path
) -> None:
    path = put(daemon.client, "streams/closed")
    told = tmp_path / "told"
    program = (
        "import os, sys\n"
        "here = {n: os.path.realpath(f'/proc/self/fd/{n}') for n in map(int, os.listdir('/dev/fd'))"
        " if os.path.exists(f'/proc/self/fd/{n}')}\n"
        "open(sys.argv[2], 'w').write(repr(sorted(n for n in here if here[n] == sys.argv[1])))\n"
    )
    command = shlex.join(
        shell.argv(
            *("run", "streams/closed", "-q", "--", sys.executable, "-c", program, "{path}", told)
        )
    )
    ran = subprocess.run(
        ["sh", "-c", f"exec {command} <&- >&- 2>&-"], env=shell.environment, check=False
    )
    assert ran.returncode == 0
    [number] = json.loads(told.read_text())
    assert number > 2, path


@pytest.mark.parametrize("code", [3, 255])
def test_the_exit_code_is_the_commands_own(daemon: Daemon, shell: Shell, code: int) -> None:
    put(daemon.client, "exits")
    ran = shell("run", "exits", "--", "sh", "-c", f"test -d {{path}} && exit {code}")
    assert ran.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_the_commands_own(daemon: Daemon, shell: Shell, number: signal.Signals) -> None:
    path = put(daemon.client, "signals")
    with shell.running("run", "signals", "--", sys.executable, "-c", STAY, "{path}") as process:
        assert first_line(process) == "ready"
        # It is the command itself, and no parent of it.
        assert STAY in Path(f"/proc/{process.pid}/cmdline").read_text()
        assert str(path) in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.send_signal(number)
        assert process.wait(60) == -number


def test_no_signal_is_ignored_that_was_not_before(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "ignored")
    command = ("sh", "-c", "grep SigIgn /proc/self/status # {path}")
    before = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shell.out("run", "ignored", "--", *command) == before


def test_ended_while_it_starts_it_lets_go(daemon: Daemon, shell: Shell) -> None:
    with http_origin() as origin:
        put(daemon.client, "first")
        source = origin.listing("m", weights=bytes(100_000))
        origin.flowing.clear()
        command = ("-m", f"second=second={source}", "--", "cat", "{path}", "{path:second}")
        with shell.running("run", "first", *command) as process:
            until(lambda: pins(daemon.client, "first") == ["hold"])
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
        origin.flowing.set()
    assert daemon.client.call("DELETE", "/v1/models/first").status == 204


def test_a_model_stays_for_as_long_as_the_command(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "stays")
    with shell.running("run", "stays", "--", sys.executable, "-c", STAY, "{path}") as process:
        assert first_line(process) == "ready"
        assert pins(daemon.client, "stays") == ["hold"]
        assert daemon.client.call("DELETE", "/v1/models/stays").status == 409
        process.kill()
        process.wait()
        # At once: nothing has to lapse.
        assert daemon.client.call("DELETE", "/v1/models/stays").status == 204


def test_children_keep_it_too(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "children")
    script = f'{sys.executable} -c "{STAY}" {{path}} & echo $!; exit 0'
    with shell.running("run", "children", "--", "sh", "-c", script) as process:
        child = int(first_line(process))
        try:
            assert process.wait(60) == 0
            assert daemon.client.call("DELETE", "/v1/models/children").status == 409
        finally:
            subprocess.run(["kill", "-KILL", str(child)], check=True)
    until(lambda: daemon.client.call("DELETE", "/v1/models/children").status == 204)


def test_a_storm_and_the_daemons_death_change_nothing_for_it(root: Path, tmp_path: Path) -> None:
    """Evictions all the time, kill -9, a start: what is mapped stays what it was."""
    enough = tmp_path / "enough"
    with running(root, capacity=CAPACITY) as first:
        shell = Shell(first.socket)
        put(first.client, "served", bytes(range(256)) * 20_000)
        reader = ("run", "served", "--", sys.executable, "-c", READER, "{path}", enough)
        with shell.running(*reader) as process:
            assert first_line(process) == "ready"
            storm(first.client)
            first.kill()
            with running(root, capacity=CAPACITY) as second:
                storm(second.client)
                assert second.client.status()["evictions"] > 0
                assert second.client.call("HEAD", "/v1/models/served").status == 200
                enough.touch()
                assert first_line(process) == "same"
                assert process.wait(60) == 0
                # And now it is one like any other.
                whole = bytes(CAPACITY - 1_000_000)
                assert second.client.call("PUT", "/v1/models/all?wait=60", whole).status == 201
                assert second.client.call("HEAD", "/v1/models/served").status == 404


def storm(client: Client) -> None:
    """Put so much that all that may go goes."""
    for number in range(6):
        answer = client.call("PUT", f"/v1/models/storm/{number}?wait=60", bytes(7_000_000))
        assert answer.status in (200, 201), answer


def test_what_is_not_here_is_fetched_once(daemon: Daemon, shell: Shell) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=b"fetched")
        before = daemon.client.status()
        ran = shell("run", "fetched", "--from", source, "--", "cat", "{file}")
        assert (ran.returncode, ran.stdout) == (0, "fetched"), ran.stderr
        assert origin.bodies("weights") == 1
        again = shell("run", "fetched", "--from", source, "-q", "--", "cat", "{file}")
        assert (again.stdout, again.stderr) == ("fetched", "")
        assert origin.bodies("weights") == 1
    after = daemon.client.status()
    assert (after["hits"] - before["hits"], after["misses"] - before["misses"]) == (1, 1)


def test_it_waits_for_room_and_for_its_origin(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon, http_origin() as origin:
        shell, size = Shell(daemon.socket), 15_000_000
        source = origin.listing("m", weights=bytes(size))
        put(daemon.client, "kept", bytes(size))
        assert daemon.client.call("PUT", "/v1/pins/replica:1/kept").status == 201
        command = ("--from", source, "--", "wc", "-c", "{file}")
        blocked = shell("run", "waits", *command)
        assert blocked.returncode == Exit.BLOCKED
        assert "Held by replica:1 (kept)" in blocked.stderr
        with shell.running("run", "waits", "--wait", "2m", *command) as process:
            until(lambda: daemon.client.status()["waiting"])
            assert daemon.client.call("DELETE", "/v1/pins/replica:1/kept").status == 204
            assert first_line(process).split()[0] == str(size)
            assert process.wait(60) == 0
        assert daemon.client.status()["misses"] == 2


def test_ctrl_c_leaves_the_fetch_going_on(daemon: Daemon, shell: Shell) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=bytes(100_000))
        origin.flowing.clear()
        with shell.running("run", "slow", "--from", source, "--", "cat", "{file}") as process:
            assert process.stderr is not None
            assert "slow: " in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == Exit.INTERRUPTED
            said = process.stderr.read()
        [job] = [one for one in daemon.client.get("/v1/fetches")["fetches"] if one["key"] == "slow"]
        assert job["state"] == "downloading"
        assert said.splitlines()[-1].endswith(f"end it with: weightd fetch --cancel {job['id']}")
        assert "Traceback" not in said
        assert shell("fetch", "--cancel", job["id"]).returncode == 0
        origin.flowing.set()
    assert daemon.client.call("HEAD", "/v1/models/slow").status == 404


# -- What is said before anything is fetched --------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "there is no command"),
        (("cat", "{path}"), "unrecognized argument cat; a command stands behind --"),
        (("cat", "--number", "{path}"), "unrecognized argument cat; a command stands behind --"),
        (("--",), "there is no command"),
        (("--", "no-such-command", "{path}"), "it is not on the PATH"),
        (("--", "/no/such/file", "{path}"), "there is no such file"),
        (("--", "/etc/passwd", "{path}"), "it may not be run"),
        (("--", "cat"), "{path} is nowhere in the command"),
        (("--", "cat", "{path:lora}"), "-m lora=KEY gives one"),
        (("-m", "lora=org/l", "--", "cat", "{path}"), "{path:lora} is nowhere"),
        (("-m", "lora", "--", "cat", "{path}"), "'lora' is not ALIAS=KEY"),
        (("-m", "a=b", "-m", "a=c", "--", "cat", "{path}", "{path:a}"), "given twice"),
        (("-m", "a=../b", "--", "cat", "{path}"), "is not a key"),
        (("--wait", "soon", "--", "cat", "{path}"), "a number of seconds such as 30"),
        (("--holder", "a b", "--", "cat", "{path}"), "argument --holder"),
        (("--form", "x", "--", "cat", "{path}"), "did you mean --from?"),
    ],
)
def test_what_cannot_be_meant_is_said_first(
    tmp_path: Path, given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Before the daemon is asked: there is none.
    nowhere = ("--socket", str(tmp_path / "no.sock"))
    with pytest.raises(SystemExit) as ended:
        main(["run", "not/here", "--from", "https://weights.invalid/m.json", *nowhere, *given])
    assert ended.value.code == Exit.USAGE
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_key_that_is_none_is_said_with_its_part(shell: Shell) -> None:
    ran = shell("run", "a//b", "--", "cat", "{path}")
    assert ran.returncode == Exit.USAGE
    assert "argument KEY: 'a//b' is not a key: a segment is empty" in ran.stderr


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        ("WEIGHTD_HOLDER", "run m -- cat {path}"),
        ("WEIGHTD_HOLDER", "pin m"),
        ("WEIGHTD_HOLDER", "unpin m"),
        ("POD_UID", "run m -- cat {path}"),
    ],
)
def test_a_variable_that_is_no_holder_is_named(tmp_path: Path, variable: str, command: str) -> None:
    ran = Shell(tmp_path / "no.sock", {variable: "a b"})(*command.split())
    assert ran.returncode == Exit.USAGE
    assert ran.stderr.startswith(f"weightd: {variable}: 'a b")


def test_a_script_whose_interpreter_is_not_there_is_told_of_it(
    daemon: Daemon, shell: Shell, tmp_path: Path
) -> None:
    put(daemon.client, "script/lost")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ran = shell("run", "script/lost", "-q", "--", script, "{path}")
    assert ran.returncode == Exit.ERROR
    assert ran.stderr == (
        f"weightd: {script} cannot be run: the interpreter that it names is not there\n"
    )


def test_file_is_for_a_model_of_one_file(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    shell.out("put", "two-files", tmp_path)
    ran = shell("run", "two-files", "--", "cat", "{file}")
    assert ran.returncode == Exit.ERROR
    assert "two-files has more than one file" in ran.stderr
    until(lambda: not pins(daemon.client, "two-files"))


def test_a_miss_without_a_source_is_a_miss(daemon: Daemon, shell: Shell) -> None:
    ran = shell("run", "nowhere", "--", "cat", "{path}")
    assert (ran.returncode, ran.stdout) == (Exit.NOT_RESIDENT, "")
    assert json.loads(shell.out("pins", "--json"))["pins"] == [] or not pins(
        daemon.client, "nowhere"
    )


def test_without_a_daemon_it_says_so(tmp_path: Path) -> None:
    ran = Shell(tmp_path / "no.sock")("run", "m", "--", "cat", "{path}")
    assert ran.returncode == Exit.UNREACHABLE
    assert "weightd serve" in ran.stderr
