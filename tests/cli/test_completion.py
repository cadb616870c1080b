"""Completions, asked of a real bash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import Shell
from tests.cli.test_run import put
from tests.system.daemon import Daemon
from weightd.cli.completion import SHELLS, flags_of_all
from weightd.cli.main import COMMANDS


def completed(shell: Shell, tmp_path: Path, *lines: str) -> list[list[str]]:
    """What bash would offer at the end of each line, its words parted as readline parts them."""
    weightd = tmp_path / "weightd"
    weightd.write_text(f'#!/bin/sh\nexec {sys.executable} -m weightd "$@"\n')
    weightd.chmod(0o755)
    script = (
        "source <(weightd completion bash)\n"
        'for line in "$@"; do COMP_LINE="$line" COMP_POINT=${#line} COMP_WORDS=()\n'
        'for word in ${line//@/ @ }; do COMP_WORDS+=("$word"); done\n'
        '[ "${line% }" = "$line" ] || COMP_WORDS+=("")\n'
        "COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))\n"
        '_weightd; echo "${COMPREPLY[*]}"; done\n'
    )
    ran = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", *lines],
        capture_output=True,
        text=True,
        check=True,
        env=shell.environment | {"PATH": f"{tmp_path}:{shell.environment['PATH']}"},
    )
    assert not ran.stderr
    return [offered.split() for offered in ran.stdout.splitlines()]


@pytest.mark.needs("bash")
def test_bash_completes_commands_flags_and_keys(
    daemon: Daemon, shell: Shell, tmp_path: Path
) -> None:
    for key in ("complete/one@v1", "complete/one@v2", "complete/two"):
        put(daemon.client, key)
    commands, *others = completed(
        shell,
        tmp_path,
        "weightd ",
        "weightd ev",
        "weightd fetch --re",
        "weightd get complete/t",
        "weightd get complete/one@v",
        "weightd completion f",
    )
    assert set(commands) == set(COMMANDS)
    assert others == [["evictions"], ["--revalidate"], ["complete/two"], ["v1", "v2"], ["fish"]]


@pytest.mark.parametrize("kind", SHELLS)
def test_every_command_and_flag_is_in_each(kind: str) -> None:
    script = Shell().out("completion", kind)
    for name, flags in flags_of_all().items():
        assert name in script
        for flag in flags:
            assert (flag if kind != "fish" else flag.removeprefix("--")) in script or kind == "fish"
