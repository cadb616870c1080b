"""What a daemon exposes."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.system.daemon import running


@pytest.fixture(scope="session")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The name of every series of a daemon that has just started."""
    with running(tmp_path_factory.mktemp("exposed") / "cache", capacity=10**6) as daemon:
        text = daemon.client.call("GET", "/metrics").body.decode()
    families = text_string_to_metric_families(text)
    return {sample.name for family in families for sample in family.samples}
