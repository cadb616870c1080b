"""``weightd ls``: what is here."""

from __future__ import annotations

import argparse
import fnmatch
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.printing import say_table
from weightd.cli.reaching import add_common, client_of
from weightd.cli.tables import Column
from weightd.cli.words import ago, count
from weightd.units import format_bytes

COLUMNS: Final = (
    Column("KEY", pliant=True),
    Column("SIZE", right=True),
    Column("KEPT BY", rank=1, pliant=True),
    Column("LAST USED", right=True, rank=2),
    Column("HITS", right=True, rank=4),
    Column("GENERATION", rank=5),
    Column("SOURCE", rank=6, pliant=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "patterns",
        metavar="PATTERN",
        nargs="*",
        help="keys to list, such as 'meta-llama/*'; all when left out",
    )
    parser.add_argument(
        "--sort",
        choices=("key", "size", "used"),
        default="key",
        help="order by key (the default), size or last use",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print the keys alone")
    add_common(parser)


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        models = ordered(matching(client.models_told(), arguments.patterns), arguments.sort)
    if arguments.json:
        say_json({"models": models})
    elif arguments.quiet:
        if models:
            say("\n".join(one["key"] for one in models))
    else:
        say_models(models, bool(arguments.patterns))
    return Exit.OK


def matching(models: Sequence[Any], patterns: Sequence[str]) -> list[Any]:
    """Those whose key, or its name without the revision, is like one of the patterns."""

    def matches(key: str) -> bool:
        names = (key, key.partition("@")[0])
        return any(fnmatch.fnmatchcase(name, one) for one in patterns for name in names)

    return [one for one in models if not patterns or matches(one["key"])]


def ordered(models: list[Any], by: str) -> list[Any]:
    if by == "size":
        return sorted(models, key=lambda one: -one["bytes"])
    if by == "used":
        return sorted(models, key=lambda one: str(one["last_used_at"]), reverse=True)
    return models


def say_models(models: Sequence[Any], some: bool) -> None:
    now = time.time()
    nothing = "no model here matches" if some else "no models here yet: weightd put, weightd fetch"
    say_table(COLUMNS, [row(one, now) for one in models], nothing)
    if models:
        whole = sum(one["bytes"] for one in models)
        say(f"{count(len(models), 'model')}, {format_bytes(whole)}")


def row(model: Mapping[str, Any], now: float) -> tuple[str, ...]:
    from weightd.client.times import epoch

    return (
        model["key"],
        format_bytes(model["bytes"]),
        kept_by(model),
        ago(epoch(model["last_used_at"]), now),
        str(model["hits"]),
        model["generation"][:12],
        model["source"] or "",
    )


def kept_by(model: Mapping[str, Any]) -> str:
    """What keeps it from being evicted, as far as a list says it."""
    said = [count(model["pins"], "pin")] if model["pins"] else []
    return ", ".join(said + (["held"] if model["held"] else []))
