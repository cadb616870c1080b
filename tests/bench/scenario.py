"""What every scenario is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.bench.figures import Row
from tests.bench.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Bench:
    """One run: how much of everything, where on disk, where sockets go, whom to tell.

    ``notes`` are lines for below the table.
    """

    sizes: Sizes
    place: Path
    sockets: Path
    say: Callable[[str], None]
    notes: list[str]


Scenario: TypeAlias = Callable[[Bench], list[Row]]
