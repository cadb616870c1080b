"""How much is tried, as a variable says.

A plain run tries one of each kind: every failpoint, every story, every fault.
``make test-thorough`` tries every combination of them, and searches longer.
"""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = os.environ.get("WEIGHTD_THOROUGH") == "1"
"""Whether an hour is no matter."""
