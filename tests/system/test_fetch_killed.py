"""SIGKILL again and again during one fetch: it goes on from what is on the disk.

The seed decides after how many bytes each kill comes, the machine the rest.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.nginx import Nginx, running_nginx
from tests.polling import until
from tests.system.daemon import Daemon, running
from tests.system.fetching import LISTING, ended, fetched, jobs, publish, sent, shards
from tests.system.journal import settled, verify_disk
from tests.system.models import Content, directory, weights_on_disk
from tests.system.tiers import FETCH_BYTES, FETCH_KILLS

KEY: Final = "org/m@1"
FILES: Final = 5
HERE: Final = directory("here", 3_000_000)
"""What is here before, and is linked into the model that is fetched."""

CAPACITY: Final = 2 * FETCH_BYTES
MOST: Final = 1.15
"""How many times the model's bytes the server may send in all."""

RATE: Final = 4_000_000
"""Bytes a second and answer: each file takes a while, and kills land in it."""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Nginx]:
    with running_nginx(tmp_path / "nginx", rate=RATE) as server:
        yield server


@pytest.mark.needs("nginx")
@pytest.mark.timeout(600)
def test_killed_at_random_points_of_a_fetch(root: Path, slow: Nginx) -> None:
    source = random.Random(4)
    new = shards("m", *[FETCH_BYTES // FILES] * FILES)
    model = Content((*HERE.files, *new.files))
    publish(slow.root, model)
    points = sorted(int(source.uniform(0.01, 0.99) * new.bytes) for _ in range(FETCH_KILLS))
    for number, point in enumerate(points):
        with running(root, capacity=CAPACITY) as daemon:
            if number == 0:
                headers = {"Content-Type": "application/x-tar"}
                answer = daemon.client.call("PUT", "/v1/models/here", HERE.body, headers)
                assert answer.status == 201, answer
            if number % 2 == 0:
                _ask(daemon, slow)
            _kill_after(daemon, point)
        assert len(os.listdir(root / "models")) == 1, "half a model is to be seen"
    with running(root, capacity=CAPACITY) as daemon:
        (job,) = jobs(daemon.client)
        assert ended(daemon.client, job["id"])["state"] == "done"
        record = fetched(daemon.client, KEY, f"{slow.url}/{LISTING}")
        assert record["digest"] == model.digest
        assert model.is_at(Path(record["path"]))
        status = settled(daemon)
        verify_disk(daemon, status)
        assert status["used_bytes"] == model.blocks, "what was here before is there once"
        assert HERE.is_at(Path(daemon.client.get("/v1/models/here")["path"]))
        assert daemon.stop() == 0
    ratio = sent(slow.answered()) / new.bytes
    print(  # noqa: T201 - figures, for whoever asks with -rP
        f"{FETCH_KILLS} kills of a fetch of {new.bytes} bytes: {ratio:.4f} of it were sent"
    )
    assert 1.0 <= ratio <= MOST


def _ask(daemon: Daemon, server: Nginx) -> None:
    """Ask, and do not wait for it."""
    asked = json.dumps({"key": KEY, "source": f"{server.url}/{LISTING}"}).encode()
    answer = daemon.client.call("POST", "/v1/fetch", asked)
    assert answer.status == 202, answer


def _kill_after(daemon: Daemon, point: int) -> None:
    """Kill a daemon that has brought so many bytes, and is not done."""
    until(lambda: _arrived(daemon.root) >= point, daemon.said)
    daemon.kill()


def _arrived(root: Path) -> int:
    """The bytes of weights on the disk beside what was here before."""
    return sum(disk for _, disk in weights_on_disk(root).values()) - HERE.blocks
