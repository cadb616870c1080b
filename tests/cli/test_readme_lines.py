"""The README's lines for engines and for Python do what it says of them, as they stand there."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.commands import HERE, Shell
from tests.cli.conftest import CAPACITY
from tests.cli.test_run import put
from tests.system.daemon import Daemon, running

TEXT: Final = (HERE / "README.md").read_text(encoding="utf-8")

ENGINES: Final = ("vllm", "python", "llama-server", "COMMAND")

MAPPED: Final = {
    "vLLM": "serve LLAMA --served-model-name org/llama --enable-lora --lora-modules lora=LORA",
    "SGLang": "-m sglang.launch_server --model-path LLAMA --served-model-name org/llama",
    "llama.cpp": "-m Q4/llama.gguf",
    "transformers": "serve.py LLAMA",
    "any shell": "",
    "no Python": "LLAMA",
}
"""What each engine of the table is given in the end."""


def chapter(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def lines() -> dict[str, str]:
    """The lines of the table, by engine."""
    rows = (row for row in chapter("Give a replica its weights").splitlines() if row[:1] == "|")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {engine: _typed(cell) for engine, cell in cells[2:]}


def _typed(cell: str) -> str:
    """What is to be typed of a cell: its words in backquotes, up to a remark."""
    told = re.sub(r"\[`([^`]*)`\]\([^)]*\)`", r"`\1", cell)
    return told.split("`")[1]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, dict[str, str]]]:
    """A daemon with the models that the README names."""
    with running(tmp_path_factory.mktemp("readme") / "cache", capacity=CAPACITY) as daemon:
        yield (
            daemon,
            {
                "LLAMA": str(put(daemon.client, "org/llama")),
                "LORA": str(put(daemon.client, "org/lora")),
                "Q4": str(put(daemon.client, "org/llama-q4", file="llama.gguf")),
            },
        )


def stand_ins(place: Path) -> Path:
    """A directory for the PATH: weightd, and engines that say what they were given."""
    place.mkdir()
    programs = dict.fromkeys(ENGINES, 'echo "$(basename "$0"):" "$@"')
    programs["weightd"] = f'exec {sys.executable} -m weightd "$@"'
    for name, does in programs.items():
        program = place / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(stat.S_IRWXU)
    return place


def test_the_table_is_of_these_engines() -> None:
    assert list(lines()) == list(MAPPED)


@pytest.mark.needs("bash", "curl", "flock")
@pytest.mark.parametrize("engine", MAPPED)
def test_the_line_of_an_engine(
    models: tuple[Daemon, dict[str, str]], tmp_path: Path, engine: str
) -> None:
    daemon, paths = models
    shell = Shell(daemon.socket)
    path = f"{stand_ins(tmp_path / 'bin')}:{shell.environment['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", lines()[engine]],
        cwd=HERE,
        env=shell.environment | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    given = MAPPED[engine]
    for name, where in paths.items():
        given = re.sub(rf"\b{name}\b", where, given)
    assert ran.stdout.partition(":")[2].strip() == given


def test_the_lines_of_python(models: tuple[Daemon, dict[str, str]], tmp_path: Path) -> None:
    daemon, paths = models
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "weights").write_text("mine")
    [program] = re.findall(r"```python\n(.*?)```", chapter("From Python"), re.DOTALL)
    shell = Shell(daemon.socket)
    ran = subprocess.run(
        [sys.executable, "-c", f"def serve(path):\n    print(path)\n{program}"],
        cwd=tmp_path,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{paths['LLAMA']}\n", "")
    assert shell.out("get", "org/mine@v1")
