"""``weightd evictions``: what went, when, why and for whom."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import say_json
from weightd.cli.printing import say_table
from weightd.cli.reaching import add_common, client_of
from weightd.cli.tables import Column
from weightd.cli.words import ago, duration
from weightd.units import format_bytes

COLUMNS: Final = (
    Column("WHEN", right=True),
    Column("KEY", pliant=True),
    Column("SIZE", right=True, rank=1),
    Column("WHY"),
    Column("FOR", rank=2, pliant=True),
    Column("IDLE", right=True, rank=3),
)

WHY: Final[Mapping[str, str]] = {
    "admission": "to make room",
    "budget": "over budget",
    "disk": "disk full",
    "request": "asked for",
    "damage": "damaged",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--last",
        metavar="N",
        type=_count,
        default=20,
        help="how many of the last to show (20); 0 is all",
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        last = client.evictions_told(arguments.last)
    if arguments.json:
        say_json({"evictions": last})
    else:
        now = time.time()
        say_table(COLUMNS, [row(one, now) for one in last], "nothing was evicted yet")
    return Exit.OK


def row(line: Mapping[str, Any], now: float) -> tuple[str, ...]:
    from weightd.client.times import epoch

    return (
        ago(epoch(line["at"]), now),
        line["key"],
        format_bytes(line["bytes"]),
        WHY.get(line["reason"], line["reason"]),
        line["beneficiary"] or "",
        duration(line["idle_seconds"]),
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines such as 20")
    return int(text)
