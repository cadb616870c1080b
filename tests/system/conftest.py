"""Real servers, for the tests that fetch from them by a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.origins.servers.certificates import Authority
from tests.origins.servers.hub import Hub, running_hub
from tests.origins.servers.liar import Liar, running_liar
from tests.origins.servers.nginx import Nginx, running_nginx


@pytest.fixture
def nginx(tmp_path: Path, authority: Authority) -> Iterator[Nginx]:
    """One of the test's own, so that what it was asked can be counted."""
    with running_nginx(tmp_path / "nginx", (authority.certificate, authority.key)) as server:
        yield server


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as server:
        yield server


@pytest.fixture
def liar() -> Iterator[Liar]:
    with running_liar() as server:
        yield server
