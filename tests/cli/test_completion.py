"""Completions, asked of the real shells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.commands import Shell
from tests.cli.test_run import put
from tests.system.daemon import Daemon
from weightd.cli.completion import SHELLS, flags_of_all
from weightd.cli.main import COMMANDS

needs = pytest.mark.needs


BASH: Final = (
    "source <(weightd completion bash)\n"
    'for line in "$@"; do COMP_LINE="$line" COMP_POINT=${#line} COMP_WORDS=()\n'
    # Its words parted as readline parts them.
    'for word in ${line//@/ @ }; do COMP_WORDS+=("$word"); done\n'
    '[ "${line% }" = "$line" ] || COMP_WORDS+=("")\n'
    "COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))\n"
    '_weightd; echo "${COMPREPLY[*]}"; done\n'
)

ZSH: Final = (
    # What only works while somebody types: zsh itself takes those that the word begins.
    "compdef() { }\n"
    "compadd() { shift; offered+=(${(M)@:#$words[CURRENT]*}) }\n"
    "_default() { offered+=(FILES) }\n"
    "source <(weightd completion zsh)\n"
    'for line in "$@"; do words=("${(@s: :)line}") CURRENT=$#words offered=()\n'
    "_weightd; print -r -- $offered; done\n"
)

FISH: Final = (
    "weightd completion fish | source\n"
    "for line in $argv; echo (complete -C $line | string split -f1 \\t); end\n"
)

REAL: Final = {
    "bash": ("--norc", "-c", BASH, "bash"),
    "zsh": ("-f", "-c", ZSH, "zsh"),
    "fish": ("--no-config", "-c", FISH),
}


def completed(kind: str, shell: Shell, tmp_path: Path, *lines: str) -> list[list[str]]:
    """What a shell would offer at the end of each line."""
    weightd = tmp_path / "weightd"
    weightd.write_text(f'#!/bin/sh\nexec {sys.executable} -m weightd "$@"\n')
    weightd.chmod(0o755)
    ran = subprocess.run(
        [kind, *REAL[kind], *lines],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=shell.environment | {"PATH": f"{tmp_path}:{shell.environment['PATH']}"},
    )
    assert not ran.stderr
    return [offered.split() for offered in ran.stdout.splitlines()]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=needs(kind)) for kind in SHELLS])
def test_commands_flags_and_keys_are_completed(
    daemon: Daemon, shell: Shell, tmp_path: Path, kind: str
) -> None:
    for key in ("complete/one@v1", "complete/one@v2", "complete/two"):
        put(daemon.client, key)
    commands, *others, file, adopted, of_command = completed(
        kind,
        shell,
        tmp_path,
        "weightd ",
        "weightd ev",
        "weightd fetch --re",
        "weightd get complete/t",
        "weightd get complete/one@v",
        "weightd completion f",
        "weightd put complete/new wei",
        "weightd adopt wei",
        "weightd run complete/two -- wei",
    )
    assert set(commands) == set(COMMANDS)
    begun = "" if kind == "bash" else "complete/one@"
    assert others == [
        ["evictions"],
        ["--revalidate"],
        ["complete/two"],
        [f"{begun}v1", f"{begun}v2"],
        ["fish"],
    ]
    # In bash files are what is offered where nothing else is.
    files = {"bash": [], "zsh": ["FILES"], "fish": ["weightd"]}[kind]
    assert file == adopted == of_command == files


@pytest.mark.parametrize("kind", SHELLS)
def test_every_command_and_flag_is_in_each(kind: str) -> None:
    script = Shell().out("completion", kind)
    for name, flags in flags_of_all().items():
        assert name in script
        for flag in flags:
            assert (flag if kind != "fish" else flag.removeprefix("--")) in script or kind == "fish"
