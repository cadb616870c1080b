"""``weightd top``: the node, live."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.reaching import add_common, client_of, read_by
from weightd.cli.terminal import (
    clipped,
    coloured,
    has_colours,
    is_live,
    is_terminal,
    is_utf8,
    visible,
    width_of,
)

if TYPE_CHECKING:
    from weightd.cli.reaching import Caller

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The other screen, without a cursor."""

_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_TO_LINE_END: Final = "\x1b[K"
_TO_SCREEN_END: Final = "\x1b[J"
_QUIT: Final = frozenset(b"qQ\x03\x04")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every",
        metavar="DURATION",
        type=read_by("parse_duration"),
        default=1.0,
        help="how often to look (1s)",
    )
    parser.add_argument("--once", action="store_true", help="look once and end")
    add_common(parser)
    parser.epilog = "q ends it. Where there is no terminal it looks once."


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        if arguments.json:
            say_json(look(client))
        elif arguments.once or not (is_live(sys.stdout) and is_terminal(sys.stdin)):
            say("\n".join(screen(look(client), width_of(sys.stdout))))
        else:
            watch(client, max(0.1, arguments.every))
    return Exit.OK


def look(client: Caller) -> dict[str, Any]:
    """All that is shown, of about one instant."""
    from weightd.cli.status import pins_of
    from weightd.client.calls import fetches, status

    return {
        "status": client.document(status()),
        "fetches": client.document(fetches())["fetches"],
        "pins": pins_of(client),
        "models": client.models_told(),
    }


def watch(client: Caller, every: float) -> None:
    """Draw again and again until it is quit; a daemon that is away is said and waited for."""
    with _screen() as keys:
        while True:
            # Not what COLUMNS said when it began: windows change their size.
            size = os.get_terminal_size(sys.stdout.fileno())
            drawn = "".join(
                f"{line}{_TO_LINE_END}\r\n" for line in _shown(client, size)[: size.lines - 1]
            )
            sys.stdout.write(_HOME + drawn + _TO_SCREEN_END)
            sys.stdout.flush()
            if _quit_within(keys, every):
                return


def _shown(client: Caller, size: os.terminal_size) -> list[str]:
    from weightd.errors import WeightdError

    try:
        return screen(look(client), size.columns)
    except WeightdError as error:
        # It is away, or starts: it may be back at the next look.
        import textwrap

        return textwrap.wrap(visible(str(error)), size.columns)


@contextmanager
def _screen() -> Iterator[int]:
    """The terminal for ourselves; as it was again afterwards.  Keys come without Enter."""
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        yield keys
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _quit_within(keys: int, seconds: float) -> bool:
    """Whether somebody quits within so many seconds; other keys look again at once."""
    readable, _, _ = select.select([keys], [], [], seconds)
    return bool(readable) and bool(_QUIT & frozenset(os.read(keys, 16) or b"q"))


# -- What is drawn -------------------------------------------------------------------


def screen(seen: Mapping[str, Any], width: int | None) -> list[str]:
    """The lines: the budget, what moves, and the models, those in use before the idle ones."""
    from weightd.cli import budget
    from weightd.cli.status import BAR_MAX, heading, warnings
    from weightd.cli.words import share
    from weightd.units import format_bytes

    utf8, colours = is_utf8(sys.stdout), has_colours(sys.stdout)
    status, now = seen["status"], time.time()
    parts = budget.parts_of(status, seen["pins"])
    bar = budget.bar(parts, BAR_MAX if width is None else width, utf8=utf8, colours=colours)
    lookups = status["hits"] + status["misses"]
    hits = f", hits {share(status['hits'], lookups)}" if lookups else ""
    lines = [
        _cut(heading(status, now), width),
        _cut(
            f"{format_bytes(status['used_bytes'])} of {format_bytes(status['capacity_bytes'])}"
            f"{hits}, {status['evictions']} evicted",
            width,
        ),
        bar,
        *budget.short_legend(parts, width, utf8=utf8, colours=colours),
        *(_cut(line, width) for line in warnings(status)),
    ]
    for title, *rows in (_jobs(seen, now, width), _models(seen, now, width)):
        lines += ["", coloured(title, "title", colours), *rows]
    return lines


def _cut(line: str, width: int | None) -> str:
    return line if width is None else clipped(line, width)


def _jobs(seen: Mapping[str, Any], now: float, width: int | None) -> list[str]:
    """The fetches under way, and those that failed within the last minutes."""
    from weightd.cli.fetch import COLUMNS, row
    from weightd.cli.tables import table
    from weightd.client.records import Job, read

    told = [(read(Job, one), one["problem"]) for one in seen["fetches"]]
    recent = [
        (job, problem)
        for job, problem in told
        if not job.ended or (problem and now - (job.ended_at or 0) < 300)
    ]
    if not recent:
        return ["no fetch under way"]
    return table(COLUMNS, [row(job, problem, now) for job, problem in recent], width)


def _models(seen: Mapping[str, Any], now: float, width: int | None) -> list[str]:
    from weightd.cli.ls import COLUMNS, row
    from weightd.cli.tables import table

    models = sorted(seen["models"], key=lambda one: one["last_used_at"], reverse=True)
    kept = _keepers(seen["pins"] or [])
    models.sort(key=lambda one: _name(one) not in kept and not one["pins"])
    if not models:
        return ["no models here"]
    rows = []
    for one in models:
        cells = list(row(one, now))
        cells[2] = kept.get(_name(one), cells[2])
        rows.append(tuple(cells))
    return table(COLUMNS, rows, width)


def _name(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["key"], one["generation"]


def _keepers(pins: list[Any]) -> dict[tuple[str, str], str]:
    """Who keeps each generation, in a few words."""
    from weightd.cli.pins import who

    found: dict[tuple[str, str], list[str]] = {}
    for one in pins:
        found.setdefault(_name(one), []).append(who(one))
    return {
        name: names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"
        for name, names in found.items()
    }
