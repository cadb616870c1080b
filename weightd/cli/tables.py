"""Tables that fit the terminal: what is least needed goes first, then what is longest is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weightd.cli.terminal import clipped, columns_of, visible

GAP: Final = "  "
_LEAST: Final = 12
"""No text is cut to fewer characters."""

_READABLE: Final = 28
"""So many of a text are enough to make room for a column of a rank below `_DEAR`."""

_DEAR: Final = 3

_LONG: Final = 80
"""So many of a text are enough to make room for any other column."""

_REVISION: Final = 5
"""So many characters of a revision, its mark among them, tell it from others."""


class Column(NamedTuple):
    """``rank`` says how early it is left out on a narrow terminal, 0 never.

    A ``pliant`` column is cut where its text is longer than there is room.
    """

    title: str
    right: bool = False
    rank: int = 0
    pliant: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines of a table, its titles first; with no ``width`` nothing is left out or cut."""
    rows = [[visible(cell) for cell in row] for row in rows]
    kept = [at for at, one in enumerate(columns) if one.rank < 9 or any(row[at] for row in rows)]
    wide = {at: _widest(at, columns, rows) for at in kept}
    if width is not None:
        _leave_out(columns, wide, width)
        _cut(columns, wide, width)
    titles = [one.title for one in columns]
    return [_line(columns, wide, row) for row in (titles, *rows)]


def _widest(at: int, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    return max(len(columns[at].title), *(columns_of(row[at]) for row in rows), 0)


def _total(wide: dict[int, int]) -> int:
    return sum(wide.values()) + len(GAP) * (len(wide) - 1)


def _leave_out(columns: Sequence[Column], wide: dict[int, int], width: int) -> None:
    """Leave out columns, those of the highest rank first, until the rest fit.

    Those of a low rank are worth more than a long text in full.
    """

    def least(kept: int) -> int:
        spare = (max(0, size - kept) for at, size in wide.items() if columns[at].pliant)
        return _total(wide) - sum(spare)

    for at in sorted(wide, key=lambda at: -columns[at].rank):
        rank = columns[at].rank
        if rank == 0 or least(_READABLE if rank < _DEAR else _LONG) <= width:
            return
        del wide[at]


def _cut(columns: Sequence[Column], wide: dict[int, int], width: int) -> None:
    """Narrow the widest of the pliant columns, a character at a time."""
    pliant = [at for at in wide if columns[at].pliant]
    while _total(wide) > width:
        widest = max(pliant, key=lambda at: wide[at], default=None)
        if widest is None or wide[widest] <= _LEAST:
            return
        wide[widest] -= 1


def _line(columns: Sequence[Column], wide: dict[int, int], row: Sequence[str]) -> str:
    cells = []
    for at, size in wide.items():
        text = shortened(row[at], size)
        blank = " " * (size - columns_of(text))
        cells.append(blank + text if columns[at].right else text + blank)
    return GAP.join(cells).rstrip()


def shortened(text: str, size: int) -> str:
    """The text, or what of it tells most where it is too long; what is cut is marked.

    A revision is long and little of it tells; names differ at both of their ends.

    >>> shortened("org/Llama-3.1-70B@0e9e39f249a16976918f", 24)
    'org/Llama-3.1-70B@0e9e3…'
    >>> shortened("org/Llama-3.1-70B@0e9e39f249a16976918f", 20)
    'org/Lla….1-70B@0e9e…'
    >>> shortened("meta-llama/Llama-3.1-70B", 13)
    'meta-l….1-70B'
    """
    if columns_of(text) <= size:
        return text
    at = text.find("@")
    if size < 3 or 0 < at <= size - _REVISION - 1:
        return f"{clipped(text, size - 1)}…"
    if at > 0:
        revision = text[at:]
        if len(revision) > _REVISION + 1:
            revision = f"{revision[:_REVISION]}…"
        if size - len(revision) >= len(revision):
            return shortened(text[:at], size - len(revision)) + revision
    head = size // 2
    last = clipped(text[::-1], size - 1 - head)[::-1]
    return f"{clipped(text, head)}…{last}"
