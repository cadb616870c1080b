"""Real servers as fixtures, each started once by the first test that needs it.

All tests have them from the one conftest, so that no process starts one twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.origins.servers.azurite import Azurite, running_azurite
from tests.origins.servers.certificates import Authority
from tests.origins.servers.seaweed import Seaweed, running_seaweed


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with running_seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server
