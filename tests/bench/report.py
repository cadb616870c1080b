"""What a run has to tell: as a table for a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.figures import Row

_RIGHT: Final = frozenset({1, 2, 3, 4})
_HEADINGS: Final = ("", "weightd", "rival", "ratio", "min .. max", "aim", "rival is")
_EXPLAINED: Final = (
    "Medians over the rounds; a ratio is weightd's figure over its rival's in one round.",
    "Of times and memory less is better, of rates more.",
)


@dataclass(frozen=True, slots=True)
class Report:
    """One run: on what, how much of everything, every figure, and what is to be said of it."""

    machine: dict[str, str]
    sizes: dict[str, int]
    rows: list[Row]
    notes: list[str]

    @classmethod
    def read(cls, path: Path) -> Report:
        """What `write` wrote."""
        words = json.loads(path.read_text())
        rows = [Row.of(row) for row in words["rows"]]
        return cls(words["machine"], words["sizes"], rows, words["notes"])

    def write(self, path: Path) -> None:
        words = {
            "machine": self.machine,
            "sizes": self.sizes,
            "rows": [row.words() for row in self.rows],
            "notes": self.notes,
        }
        path.write_text(json.dumps(words, indent=1) + "\n")

    def text(self) -> str:
        """Everything, for a terminal."""
        facts = [f"{what:<10}  {fact}" for what, fact in self.machine.items()]
        return "\n".join([*facts, "", _table(self.rows), "", *_EXPLAINED, *self.notes])

    def markdown(self) -> str:
        """The rows that something is aimed at, and the machine."""
        rows = [row for row in self.rows if row.aim]
        headings = ("what is measured", *_HEADINGS[1:])
        aligned = ["---:" if one in _RIGHT else "---" for one in range(len(headings))]
        lines = [headings, aligned]
        for scenario, row in _grouped(rows):
            if scenario:
                lines.append((f"**{scenario}**", *[""] * (len(headings) - 1)))
            lines.append(row.cells())
        facts = [f"- {what}: {fact}" for what, fact in self.machine.items()]
        return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *facts])


def _grouped(rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """Each row, and its scenario before the first of that, else ""."""
    scenario = ""
    for row in rows:
        yield ("" if row.scenario == scenario else row.scenario), row
        scenario = row.scenario


def _table(rows: Sequence[Row]) -> str:
    lines = [_HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [_line(_HEADINGS, widths), "-" * (sum(widths) + 2 * (len(widths) - 1))]
    for scenario, row in _grouped(rows):
        if scenario:
            text += ["", scenario]
        text.append(_line(row.cells(), widths))
    return "\n".join(text)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if column in _RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
