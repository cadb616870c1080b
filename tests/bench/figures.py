"""Figures of rounds, their ratios, and the lines of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

_SCALES: Final = {"us": 1e6, "ms": 1e3, "s": 1.0, "/s": 1.0, "MB": 1e-6, "MB/s": 1e-6, "s/GiB": 1.0}


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

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

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
            "unit": "bytes" if self.unit == "MB" else "s" if self.unit in ("us", "ms") else "/s",
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


_HEADINGS: Final = ("", "weightd", "rival", "ratio", "min .. max", "aim", "rival is")
_RIGHT: Final = frozenset({1, 2, 3, 4})


def table(rows: Sequence[Row]) -> str:
    """The rows as text, grouped by scenario."""
    lines = [_HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [_line(_HEADINGS, widths), "-" * (sum(widths) + 2 * (len(widths) - 1))]
    scenario = ""
    for row in rows:
        if row.scenario != scenario:
            scenario = row.scenario
            text += ["", scenario]
        text.append(_line(row.cells(), widths))
    return "\n".join(text)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if column in _RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
