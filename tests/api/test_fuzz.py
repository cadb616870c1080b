"""schemathesis over the live app: every status is described and every answer keeps its schema."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.api.serving import answering, serving
from tests.tiers import THOROUGH
from weightd.cache import Options
from weightd.origins.contract import Trust

EXAMPLES = 50 if THOROUGH else 3
SETTINGS = Path(__file__).with_name("schemathesis.toml")

# A stream of events ends only with the daemon.
ENDLESS = "/v1/events"


# Nothing is fetched from the network: only a port where nobody listens is allowed.
NOWHERE = Options(trust=Trust(allowed=("http://127.0.0.1:1/",)))


@pytest.mark.timeout(3600 if THOROUGH else 300)
async def test_schemathesis_finds_nothing(root: Path, tmp_path: Path) -> None:
    async with (
        serving(root, capacity=1_000_000_000, options=NOWHERE) as served,
        answering(served.cache, served.desk, "admin", tcp=True) as address,
    ):
        url = str(address.client.base_url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS)),
            *("run", f"{url}/openapi.json", "--url", url, "--checks", "all"),
            *("--exclude-checks", "positive_data_acceptance"),
            *("--exclude-path", ENDLESS, "--max-examples", str(EXAMPLES), "--seed", "1"),
            *("--request-timeout", "30", "--continue-on-failure"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
