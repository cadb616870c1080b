"""The ratios as a picture: one line a row, as SVG that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final
from xml.sax.saxutils import escape

from tests.bench.figures import Row

_WIDTH: Final = 1000
_LEFT: Final = 520
_RIGHT: Final = 980
_LINE: Final = 20
_TOP: Final = 54
_TICKS: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)

# Of a brightness in between, to be read on white and on black.
_STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #75808c }
.scenario { font-weight: bold }
.end { text-anchor: end }
.middle { text-anchor: middle }
.grid { stroke: #75808c; stroke-opacity: .25 }
.one { stroke: #75808c; stroke-width: 1.5 }
.bar { stroke-width: 3; stroke-opacity: .55; stroke-linecap: round }
.met { stroke: #2f9e63; fill: #2f9e63 }
.unmet { stroke: #d9772b; fill: #d9772b }
.aim { stroke: #8f6fe0; stroke-width: 2.5 }
"""


class Axis:
    """Where on the picture a gain is; on a logarithmic axis with 1 on it."""

    def __init__(self, gains: Iterable[float]) -> None:
        far = max((abs(math.log(gain)) for gain in gains if 0 < gain < math.inf), default=0.0)
        # Beyond the last tick is drawn at the edge.
        self._far = min(max(far * 1.05, math.log(2.2)), math.log(_TICKS[-1] * 1.1))

    def at(self, gain: float) -> float:
        share = math.log(gain) / self._far if gain > 0 else -math.inf
        middle, half = (_LEFT + _RIGHT) / 2, (_RIGHT - _LEFT) / 2
        return middle + half * max(-1.0, min(1.0, share))

    @property
    def ticks(self) -> list[float]:
        return [tick for tick in _TICKS if abs(math.log(tick)) <= self._far]


def plot(rows: Sequence[Row]) -> str:
    """A line for each row that aims at a ratio: median, least to greatest, and the aim.

    To the right of 1 weightd is better, of whatever kind the figure is.
    """
    aimed = [(row, row.bound) for row in rows]
    shown = [(row, bound) for row, bound in aimed if bound is not None]
    axis = Axis(one for row, bound in shown for one in (*_gains(row), row.gain(bound)))
    lines: list[str] = []
    y, scenario = _TOP, ""
    for row, bound in shown:
        if row.scenario != scenario:
            scenario = row.scenario
            y += _LINE
            lines.append(_text(10, y + 4, scenario, "scenario"))
            y += _LINE
        lines += _line(axis, row, bound, y)
        y += _LINE
    return "\n".join([*_head(y), *_grid(axis, y), *lines, *_legend(y + 22), "</svg>", ""])


def _gains(row: Row) -> list[float]:
    return [row.gain(ratio) for ratio in row.ratios]


def _head(bottom: int) -> Iterator[str]:
    height = bottom + 40
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="weightd beside its rivals">'
    )
    yield f"<style>{_STYLE}</style>"


def _grid(axis: Axis, bottom: int) -> Iterator[str]:
    yield _text(round(axis.at(1)) - 10, 16, "← rival is better", "end")
    yield _text(round(axis.at(1)) + 10, 16, "weightd is better →", "")
    for tick in axis.ticks:
        x = axis.at(tick)
        kind = "one" if tick == 1 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>'
        yield _text(round(x), _TOP - 16, f"{tick:g}", "middle")


def _line(axis: Axis, row: Row, bound: float, y: int) -> Iterator[str]:
    gains, aim = sorted(_gains(row)), axis.at(row.gain(bound))
    middle = row.gain(median(row.ratios))
    kind = "met" if middle >= row.gain(bound) else "unmet"
    least, most, at = axis.at(gains[0]), axis.at(gains[-1]), axis.at(middle)
    yield _text(24, y + 4, f"{row.what} ({row.rival})", "")
    yield f'<line class="aim" x1="{aim:.1f}" x2="{aim:.1f}" y1="{y - 7}" y2="{y + 7}"/>'
    yield f'<line class="bar {kind}" x1="{least:.1f}" x2="{most:.1f}" y1="{y}" y2="{y}"/>'
    yield (
        f'<circle class="{kind}" cx="{at:.1f}" cy="{y}" r="4">'
        f"<title>{escape(' · '.join(cell for cell in row.cells() if cell))}</title></circle>"
    )


def _legend(y: int) -> Iterator[str]:
    yield f'<circle class="met" cx="28" cy="{y}" r="4"/>'
    yield _text(38, y + 4, "median, the aim is met", "")
    yield f'<circle class="unmet" cx="218" cy="{y}" r="4"/>'
    yield _text(228, y + 4, "it is not", "")
    yield f'<line class="bar met" x1="318" x2="348" y1="{y}" y2="{y}"/>'
    yield _text(356, y + 4, "least to greatest of the rounds", "")
    yield f'<line class="aim" x1="568" x2="568" y1="{y - 7}" y2="{y + 7}"/>'
    yield _text(578, y + 4, "what is aimed at", "")


def _text(x: int, y: int, words: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'
