"""What a command loads: asking for a path must not wait for what it does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.commands import HERE
from tests.cli.test_run import put
from tests.system.daemon import Daemon
from weightd.cli import get
from weightd.cli.parsing import Parser

HEAVY = {
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "email",
    "fastapi",
    "hashlib",
    "http.client",
    "inspect",
    "json",
    "logging",
    "lzma",
    "pathlib",
    "pydantic",
    "shutil",
    "tempfile",
    "urllib.parse",
    "weightd.errors",
    "weightd.settings",
}
MORE_THAN_A_LOOKUP = HEAVY | {
    "argparse",
    "collections",
    "contextlib",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "gettext",
    "importlib.util",
    "locale",
    "re",
    "selectors",
    "socket",
    "threading",
    "types",
    "typing",
    "weightd.client.calls",
    "weightd.client.client",
    "weightd.client.faults",
    "weightd.client.records",
    "weightd.units",
}
NEVER = {"fastapi", "http.client", "pydantic", "starlette", "uvicorn", "weightd.settings"}


def loaded_by(program: str, *given: object) -> set[str]:
    """The modules that a program loads; it may exit."""
    watched = (
        "import sys\ntry:\n    exec(sys.argv.pop(1))\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", watched, program, *map(str, given)],
        capture_output=True,
        text=True,
        check=True,
        cwd=HERE,
    )
    return set(ran.stderr.split())


def test_get_loads_next_to_nothing(daemon: Daemon) -> None:
    put(daemon.client, "light/one")
    program = "from weightd.cli.main import main; main(sys.argv[1:])"
    loaded = loaded_by(program, "get", "light/one", "--socket", daemon.socket)
    assert "weightd.client.blocking" in loaded
    assert not loaded & MORE_THAN_A_LOOKUP


def test_run_makes_no_error_before_there_is_one(daemon: Daemon) -> None:
    put(daemon.client, "light/two")
    # It says in place of the exec what there is by then.
    program = (
        "import os\n"
        "def told(*_):\n"
        "    print('\\n'.join(sys.modules), file=sys.stderr, flush=True)\n"
        "    os._exit(0)\n"
        "os.execve = told\n"
        "from weightd.cli.main import main; main(sys.argv[1:])"
    )
    given = ("run", "light/two", "--socket", daemon.socket, "--", "true", "{path}")
    loaded = loaded_by(program, *given)
    assert "weightd.client.holding" in loaded
    assert not loaded & {"dataclasses", "inspect", "weightd.errors.base", "weightd.model"}


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (["org/m"], ("org/m", None)),
        (["org/m", "--socket", "/s"], ("org/m", "/s")),
        (["--socket", "/s", "org/m@v1"], ("org/m@v1", "/s")),
        (["--socket", "/s", "org/m", "--socket", "/t"], ("org/m", "/t")),
    ],
)
def test_get_reads_a_plain_line_as_its_parser_does(
    given: list[str], asked: tuple[str, str | None]
) -> None:
    parser = Parser()
    get.add_arguments(parser)
    parsed = parser.parse_all(given)
    assert get.asked_plainly(given) == asked == (parsed.key, parsed.socket)
    assert not parsed.json


@pytest.mark.parametrize(
    "given",
    ["", "a b", "a --json", "a --socket", "a --socket -x", "a --socket=/s", "-h", "-- a", "-1"],
)
def test_get_leaves_every_other_line_to_its_parser(given: str) -> None:
    assert get.asked_plainly(given.split()) is None


@pytest.mark.parametrize("command", ["ls", "status", "top", "pins", "evictions"])
def test_no_command_loads_the_server(daemon: Daemon, command: str) -> None:
    program = "from weightd.cli.main import main; main(sys.argv[1:])"
    loaded = loaded_by(program, command, "--socket", daemon.socket)
    assert "weightd.client.blocking" in loaded
    assert not loaded & (NEVER | {"asyncio"})


def test_the_clients_load_no_server() -> None:
    program = (
        "import asyncio, weightd.client.fetching, weightd.client.holding, weightd.client.packing\n"
        "from weightd.client import AsyncClient, Client\n"
    )
    assert not loaded_by(program) & NEVER
    assert not loaded_by("from weightd.client import Client") & HEAVY
