"""A daemon that all tests here share, each with keys of its own, and both clients on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.client.twins import TWINS, twin
from tests.system.daemon import Daemon, running
from weightd.client import Client

CAPACITY: Final = 40_000_000


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("node")
    (place / "origins").mkdir()
    options = (
        *("--import-roots", str(place / "origins")),
        *("--replica-socket", str(place / "replica.sock")),
    )
    with running(place / "cache", capacity=CAPACITY, options=options) as daemon:
        yield daemon


@pytest.fixture(params=TWINS)
def client(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Client]:
    with twin(request.param, daemon.socket) as client:
        yield client


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of the test's own, since all share a daemon."""
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)
    return f"tests/{name.strip('-')}"
