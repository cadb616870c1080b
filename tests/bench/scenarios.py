"""All that is measured, in the order of the table."""

from __future__ import annotations

from typing import Final

from tests.bench import (
    busy,
    content,
    fetch,
    get,
    hands,
    hit,
    ingest,
    memory,
    pin,
    scale,
    startup,
    tarball,
)
from tests.bench.scenario import Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
    "hit": hit.measure,
    "busy": busy.measure,
    "pin": pin.measure,
    "startup": startup.measure,
    "scale": scale.measure,
    "memory": memory.measure,
    "get": get.measure,
    "put": ingest.measure,
    "tar": tarball.measure,
    "content": content.measure,
    "hands": hands.measure,
    "fetch": fetch.measure,
}
