"""A daemon that all tests here share, each with keys of its own, and a shell beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cli.commands import Shell
from tests.system.daemon import Daemon, running

CAPACITY: Final = 20_000_000


@contextmanager
def daemon_at(place: Path) -> Iterator[Daemon]:
    """A daemon with the directories of a node below ``place``."""
    (place / "origins").mkdir()
    options = (
        *("--import-roots", str(place / "origins")),
        *("--replica-socket", str(place / "replica.sock")),
    )
    with running(place / "cache", capacity=CAPACITY, options=options) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon_at(tmp_path_factory.mktemp("node")) as daemon:
        yield daemon


@pytest.fixture
def shell(daemon: Daemon) -> Shell:
    return Shell(daemon.socket)
