"""``weightd status``: the budget, who occupies it, and how the daemon is."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.reaching import add_common, client_of

if TYPE_CHECKING:
    from weightd.cli.reaching import Caller

BAR_MAX: Final = 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(arguments: argparse.Namespace) -> int:
    from weightd.client.calls import status

    with client_of(arguments) as client:
        told = client.document(status())
        pins = None if arguments.json else pins_of(client)
    if arguments.json:
        say_json(told)
    else:
        say("\n".join(lines(told, pins)))
    return Exit.OK


def pins_of(client: Caller) -> list[Any] | None:
    """Every pin, hold and use; None at a door that does not tell them."""
    from weightd.client.calls import pins
    from weightd.errors import Forbidden

    try:
        found: list[Any] = client.document(pins())["pins"]
    except Forbidden:
        return None
    return found


def lines(told: Mapping[str, Any], pins: Sequence[Any] | None) -> list[str]:
    """What is printed, within the width of the terminal."""
    from weightd.cli import budget
    from weightd.cli.terminal import has_colours, is_utf8, width_of
    from weightd.units import format_bytes

    utf8, colours = is_utf8(sys.stdout), has_colours(sys.stdout)
    size = min(BAR_MAX, (width_of(sys.stdout) or BAR_MAX + 4) - 4)
    parts = budget.parts_of(told, pins)
    capacity = told["capacity_bytes"]
    return [
        heading(told, time.time()),
        "",
        f"budget  {format_bytes(capacity)} ({capacity} bytes)",
        f"  {budget.bar(parts, size, utf8=utf8, colours=colours)}",
        *(f"  {line}" for line in budget.legend(parts, utf8=utf8, colours=colours)),
        "",
        *figures(told),
        *warnings(told),
    ]


def heading(told: Mapping[str, Any], now: float) -> str:
    from weightd.cli.terminal import visible
    from weightd.cli.words import duration
    from weightd.client.times import epoch

    up = duration(now - epoch(told["started_at"]))
    return f"weightd {told['version']}  {told['state']}, up {up}  {visible(told['root'])}"


def figures(told: Mapping[str, Any]) -> list[str]:
    """Counts, a line for each subject."""
    from weightd.cli.words import count
    from weightd.units import format_bytes

    replaced = told["retired_models"]
    free, whole = told["filesystem_free_bytes"], told["filesystem_total_bytes"]
    rows = {
        "models": f"{told['models']}" + (f", and {replaced} replaced but kept" if replaced else ""),
        "kept": _kept(told),
        "lookups": _lookups(told),
        "evicted": f"{told['evictions']}, {format_bytes(told['evicted_bytes'])}",
        "moving": ", ".join(
            count(told[name], what)
            for name, what in (("fetches_in_flight", "fetch"), ("arrivals", "arrival"))
        )
        + (f", {told['waiting']} waiting for room" if told["waiting"] else "")
        + (f", {told['partials']} unfinished" if told["partials"] else ""),
        "disk": f"{format_bytes(free)} free of {format_bytes(whole)}, others have "
        f"{format_bytes(told['others_bytes'])}, {format_bytes(told['min_free_bytes'])} stay free",
    }
    return [f"{name:<8}{value}" for name, value in rows.items()]


def _kept(told: Mapping[str, Any]) -> str:
    from weightd.cli.words import count, duration
    from weightd.client.times import epoch

    oldest = told["oldest_pin_since"]
    age = f" (the oldest {duration(time.time() - epoch(oldest))})" if oldest else ""
    pins, holds = count(told["pins"], "pin"), count(told["holds"], "hold")
    return f"{pins}{age}, {holds}, {count(told['uses'], 'use')}"


def _lookups(told: Mapping[str, Any]) -> str:
    from weightd.cli.words import count, share

    lookups = told["hits"] + told["misses"]
    ratio = f" ({share(told['hits'], lookups)} hits)" if lookups else ""
    return f"{count(told['hits'], 'hit')}, {count(told['misses'], 'miss')}{ratio}"


def warnings(told: Mapping[str, Any]) -> list[str]:
    """What an operator should do something about."""
    from weightd.cli.terminal import visible
    from weightd.cli.words import count
    from weightd.units import format_bytes

    said = []
    if not told["pins_known"]:
        said.append("the record of pins was lost, nothing is evicted: weightd pins --accept-loss")
    if told["over_budget_bytes"]:
        said.append(f"{format_bytes(told['over_budget_bytes'])} over the budget")
    if told["damaged_models"]:
        damaged = count(told["damaged_models"], "damaged model")
        said.append(f"{damaged} since the start: weightd evictions")
    if not told["in_use_detection"]["leases"]:
        said.append("this filesystem does not tell what is open: only pins and holds keep models")
    if told["foreign"]:
        said.append(f"in the root and not weightd's: {', '.join(told['foreign'][:5])}")
    return ["", *(f"note: {visible(one)}" for one in said)] if said else []
