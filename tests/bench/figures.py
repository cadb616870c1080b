"""Figures of rounds, their ratios, and the lines of the table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

_SCALES: Final = {
    "us": 1e6, "ms": 1e3, "s": 1.0, "s/GiB": 1.0, "/s": 1.0, "MB": 1e-6, "MB/s": 1e-6,
}  # fmt: skip
_RATES: Final = frozenset({"/s", "MB/s"})
_PLAIN: Final = {
    "us": "s", "ms": "s", "s": "s", "s/GiB": "s/GiB", "/s": "/s", "MB": "bytes", "MB/s": "bytes/s",
}  # fmt: skip
"""The units of the figures that are shown in each unit."""

_AIM: Final = re.compile(r"[<>]= ([0-9.]+)")


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of ascending values; ``share`` is 0.99 for p99."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True, slots=True)
class Latency:
    """What a round says of many exchanges, in seconds."""

    p50: float
    p99: float
    worst: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        ordered = sorted(seconds)
        return cls(percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1], len(ordered))


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: a figure of weightd's and one of its rival's per round.

    Figures are in seconds, bytes, or either per second; ``unit`` is how they
    are shown.  ``aim`` is what the ratio should be, "" where nothing is aimed at.
    """

    scenario: str
    what: str
    rival: str
    unit: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    aim: str = ""

    def add(self, ours: float, theirs: float) -> None:
        """Take the figures of one round."""
        self.ours.append(ours)
        self.theirs.append(theirs)

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Row:
        """The row that `words` tells of."""
        scenario, what, rival, unit = (words[x] for x in ("scenario", "what", "rival", "shown"))
        return cls(scenario, what, rival, unit, words["ours"], words["theirs"], words["aim"] or "")

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def more_is_better(self) -> bool:
        """Of rates it is; of times and memory it is not."""
        return self.unit in _RATES

    @property
    def bound(self) -> float | None:
        """The ratio that is aimed at; None where nothing is, or something else than a ratio."""
        found = _AIM.fullmatch(self.aim)
        return float(found[1]) if found else None

    def gain(self, ratio: float) -> float:
        """How many times as good as its rival's weightd's figure is at this ratio."""
        if self.more_is_better:
            return ratio
        return 1 / ratio if ratio > 0 else math.inf

    def cells(self) -> tuple[str, ...]:
        ratios = self.ratios
        return (
            self.what,
            self.shown(self.ours),
            self.shown(self.theirs),
            f"{median(ratios):.2f}",
            f"{min(ratios):.2f} .. {max(ratios):.2f}",
            self.aim,
            self.rival,
        )

    def words(self) -> dict[str, Any]:
        """Everything, for the JSON."""
        ratios = self.ratios
        return {
            "scenario": self.scenario,
            "what": self.what,
            "rival": self.rival,
            "unit": _PLAIN[self.unit],
            "shown": self.unit,
            "better": "more" if self.more_is_better else "less",
            "ours": self.ours,
            "theirs": self.theirs,
            "ratios": ratios,
            "ratio": {"min": min(ratios), "median": median(ratios), "max": max(ratios)},
            "aim": self.aim or None,
        }

    def shown(self, figures: Sequence[float]) -> str:
        """The median of figures in this row's unit."""
        value = median(figures) * _SCALES[self.unit]
        return f"{value:,.0f} {self.unit}" if value >= 100 else f"{value:.3g} {self.unit}"
