"""How much of what is slow is run: ``WEIGHTD_KILLS`` is the number of random kills."""

from __future__ import annotations

import os
from typing import Final

KILLS: Final = int(os.environ.get("WEIGHTD_KILLS", "20"))
"""20 in every run of the tests; ``make test-kill`` asks for 100."""

THOROUGH: Final = KILLS >= 100
"""Whether minutes are no matter: then every occurrence of every failpoint kills once."""
