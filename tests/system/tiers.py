"""How much of what is slow is run, as variables say: more of it has a target of its own."""

from __future__ import annotations

import os
from typing import Final

import tests.tiers

KILLS: Final = int(os.environ.get("WEIGHTD_KILLS", "100" if tests.tiers.THOROUGH else "20"))
"""Random kills: 20 in every run of the tests; ``make test-kill`` asks for 100."""

THOROUGH: Final = KILLS >= 100
"""Whether every occurrence of every failpoint kills once, which takes minutes."""

FETCH_KILLS, FETCH_BYTES = (20, 200_000_000) if THOROUGH else (5, 40_000_000)
"""How often a daemon is killed during one fetch, and how large that is."""

STORM_SECONDS: Final = int(os.environ.get("WEIGHTD_STORM_SECONDS", "8"))
"""How long the storm lasts; ``make test-storm`` asks for 60."""

STORM_CLIENTS: Final = int(os.environ.get("WEIGHTD_STORM_CLIENTS", "32"))

MOMENTS: Final = int(os.environ.get("WEIGHTD_MOMENTS", "60"))
"""How often a replica begins to use what is evicted just then; ``make test-storm``: 1,000."""
