"""The README's chapters on watching: every metric, every alert, and commands that work."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.prometheus.rules import HERE, alerts
from tests.system.daemon import running

README: Final = (HERE / "README.md").read_text()


def chapter(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


RUNBOOK: Final = chapter("A runbook by symptom")


def test_each_alert_has_its_entry_and_each_entry_its_alert() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE) == list(alerts())


def test_what_it_refers_to_is_there() -> None:
    named = set(re.findall(r"\]\(#(\w+)\)", RUNBOOK))
    assert named <= {alert.lower() for alert in alerts()}


def test_every_metric_is_told(exposed: set[str]) -> None:
    rows = [line for line in chapter("Watch it").splitlines() if line.startswith("|")]
    told = set(re.findall(r"`([a-z_]+)(?:\{[a-z,]+\})?`", "\n".join(rows)))
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in exposed}
    assert told == {name.removeprefix("weightd_") for name in families}


@pytest.mark.needs("bash", "curl", "ss", "lsattr")
def test_its_commands_work(root: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", RUNBOOK, re.DOTALL)
    assert len(blocks) > 15
    # Some are said at several alerts; once is enough here.
    commands = dict.fromkeys("".join(blocks).splitlines())
    with running(root, capacity=10**6, options=("--listen", "127.0.0.1:0")) as daemon:
        assert daemon.client.call("PUT", "/v1/models/org/m", b"weights").status == 201
        assert daemon.client.call("PUT", "/v1/pins/pod/org/m").status == 201
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
            cwd=tmp_path,
            env={
                "PATH": f"{_commands(tmp_path)}:{os.environ['PATH']}",
                "WEIGHTD_SOCKET": str(daemon.socket),
                "SOCKET": str(daemon.socket),
                "WEIGHTD_ROOT": str(root),
                "ROOT": str(root),
                "LISTEN": f"127.0.0.1:{daemon.port()}",
                "KEY": "org/m",
                "HOLDER": "pod",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert daemon.client.status()["pins"] == 0


def _commands(place: Path) -> Path:
    """A directory for the PATH with weightd in it."""
    command = place / "bin" / "weightd"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={HERE} exec {sys.executable} -m weightd "$@"\n')
    command.chmod(stat.S_IRWXU)
    return command.parent
