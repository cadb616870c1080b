"""``weightd verify``: what it says of whole and of damaged models, and how it exits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.commands import Shell
from tests.cli.conftest import daemon_at
from tests.cli.test_commands import put
from tests.frozen import frozen
from tests.polling import until
from tests.store.damages import flip_byte
from tests.system.daemon import Daemon
from tests.system.faults import Fault, failing
from weightd.cli.exits import Exit

READS = Fault("read", ("preadv", "preadv2"), by_path=True)


def rows_of(out: str) -> list[list[str]]:
    """The lines of the table without its titles."""
    titles, *rows = out.split("\n\n", maxsplit=1)[0].splitlines()
    assert titles.split() == ["KEY", "FOUND", "READ", "TOOK"]
    return [row.split()[:2] for row in rows if not row[0].isdigit()]


def test_whole_models(daemon: Daemon, shell: Shell) -> None:
    for key in ("verify/one@v1", "verify/two"):
        put(daemon.client, key)
    ran = shell("verify", "-q", "verify/one@v1", "verify/two")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert rows_of(ran.stdout) == [["verify/one@v1", "whole"], ["verify/two", "whole"]]
    assert ran.stdout.splitlines()[-1] == "2 models, 6 B read: 2 whole"
    (told,) = json.loads(shell.out("verify", "verify/two", "--json"))["models"]
    assert (told["key"], told["outcome"], told["detail"]) == ("verify/two", "whole", None)
    assert told["verification"]["damaged"] == []


def test_all_models_when_none_is_named(tmp_path: Path) -> None:
    keys = ("verify/all", "verify/more", "another")
    with daemon_at(tmp_path) as daemon:
        for key in keys:
            put(daemon.client, key)
        ran = Shell(daemon.socket)("verify")
        assert ran.returncode == 0, ran.stdout
        assert sorted(rows_of(ran.stdout)) == sorted([key, "whole"] for key in keys)


def test_damaged_models_stand_last_and_are_told_file_by_file(daemon: Daemon, shell: Shell) -> None:
    harms = ("verify/flipped", "verify/short", "verify/missing")
    flipped, short, missing = (Path(put(daemon.client, key), "weights") for key in harms)
    flip_byte(flipped)
    os.truncate(short, 2)
    missing.parent.chmod(0o755)
    missing.unlink()
    put(daemon.client, "verify/whole")
    before = daemon.client.status()["damaged_models"]
    ran = shell("verify", *harms, "verify/whole")
    assert ran.returncode == Exit.ERROR
    assert [found for _, found in rows_of(ran.stdout)] == ["whole", *["damaged"] * 3]
    published = "709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c"
    for said in (
        "verify/flipped is damaged, and answered no more:\n",
        "  digest-mismatch: weights is not what was published\n",
        f"    published {published}\n    is        ",
        "  changed: weights has 2 bytes instead of 3\n",
        "  missing: weights is missing\n",
        "  it is gone (weightd evictions)",
    ):
        assert said in ran.stdout
    assert ran.stdout.endswith("\n4 models, 12 B read: 1 whole, 3 damaged\n")
    assert daemon.client.status()["damaged_models"] == before + 3
    last = json.loads(shell.out("evictions", "--json", "-n", "3"))["evictions"]
    assert {(one["key"], one["reason"]) for one in last} == {(key, "damage") for key in harms}
    ran = shell("verify", "verify/flipped")
    assert ran.returncode == Exit.NOT_RESIDENT


def test_one_that_somebody_has_stays_for_him(daemon: Daemon, shell: Shell) -> None:
    path = put(daemon.client, "verify/pinned")
    shell.out("pin", "verify/pinned", "--holder", "replica:1")
    flip_byte(Path(path, "weights"))
    ran = shell("verify", "verify/pinned", "--json")
    assert ran.returncode == Exit.ERROR
    (told,) = json.loads(ran.stdout)["models"]
    assert told["verification"]["kept"] is True
    assert Path(path, "weights").exists()
    assert shell("get", "verify/pinned").returncode == Exit.NOT_RESIDENT
    shell.out("unpin", "verify/pinned", "--holder", "replica:1")
    until(lambda: not Path(path).exists())


def test_how_it_exits(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    put(daemon.client, "verify/here")
    ran = shell("verify", "verify/nothing", "verify/here")
    assert ran.returncode == Exit.NOT_RESIDENT
    assert "verify/nothing is not on this node" in ran.stderr
    assert "1 not-resident" in ran.stdout
    assert shell("verify", "no//key").returncode == Exit.USAGE
    assert Shell(tmp_path / "none")("verify").returncode == Exit.UNREACHABLE
    assert Shell(tmp_path / "none")("verify", "m").returncode == Exit.UNREACHABLE


@pytest.mark.needs("strace")
def test_what_cannot_be_read_is_damaged(daemon: Daemon, shell: Shell) -> None:
    weights = Path(put(daemon.client, "verify/unreadable", 5000), "weights")
    with failing(daemon, READS, "EIO"):
        ran = shell("verify", "verify/unreadable")
    assert ran.returncode == Exit.ERROR
    reason = "weights cannot be read at byte 0 or soon after: Input/output error"
    assert f"  io-error: {reason}\n" in ran.stdout
    until(lambda: not weights.exists())


@pytest.mark.needs("strace")
def test_a_disk_that_fails_otherwise_says_nothing_of_a_model(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "verify/unsure", 5000)
    with failing(daemon, READS, "ENOMEM"):
        ran = shell("verify", "verify/unsure")
    assert (ran.returncode, "1 io-error" in ran.stdout) == (Exit.ERROR, True)
    assert "Cannot allocate memory" in ran.stderr
    assert shell("verify", "verify/unsure").returncode == 0


def test_ctrl_c_ends_it_and_says_so(daemon: Daemon, shell: Shell) -> None:
    put(daemon.client, "verify/long")
    with shell.running("verify", "verify/long") as running, frozen(daemon.process):
        # It has connected when there is no more to be read of what it waits for.
        until(lambda: waits(running.pid))
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == Exit.INTERRUPTED
    assert "Traceback" not in err
    if out.startswith("KEY"):
        return  # it was done before the daemon stood still
    assert out == ""
    assert err == (
        "weightd: the verification of verify/long was ended before it began; nothing was changed\n"
    )


def waits(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/wchan").read_text() == "poll_schedule_timeout.constprop.0"
    except FileNotFoundError:
        return True
