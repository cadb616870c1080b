"""``weightd pins``: who keeps what."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import note, say_json
from weightd.cli.printing import say_table
from weightd.cli.reaching import add_common, client_of
from weightd.cli.tables import Column
from weightd.cli.words import ago, ahead
from weightd.units import format_bytes

COLUMNS: Final = (
    Column("KEY", pliant=True),
    Column("SIZE", right=True, rank=3),
    Column("BY"),
    Column("WHO", pliant=True),
    Column("SINCE", right=True, rank=2),
    Column("UNTIL", rank=1),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="after the record of pins was lost: have weightd evict again",
    )
    parser.epilog = (
        "BY pin: a holder's claim, kept by weightd. BY hold: a lock on the directory, kept by the "
        "kernel. BY use: some process has a file of it open or mapped."
    )


def run(arguments: argparse.Namespace) -> int:
    from weightd.client.calls import pins

    with client_of(arguments) as client:
        if arguments.accept_loss:
            client.accept_loss()
            note("the loss of pins is accepted; weightd evicts again")
            return Exit.OK
        told = client.document(pins())
        known = client.status().pins_known
    if arguments.json:
        say_json(told)
    else:
        now = time.time()
        say_table(COLUMNS, [row(one, now) for one in told["pins"]], "nothing is pinned or in use")
    if not known:
        note(
            "the record of pins was lost, and nothing is evicted. When every replica has pinned "
            "again: weightd pins --accept-loss"
        )
    return Exit.OK


def row(pin: Mapping[str, Any], now: float) -> tuple[str, ...]:
    from weightd.client.times import epoch, epoch_or_none

    old = "" if pin["current"] else " (replaced)"
    return (
        pin["key"] + old,
        format_bytes(pin["bytes"]),
        pin["kind"],
        who(pin),
        ago(epoch(pin["since"]), now),
        until(pin, epoch_or_none(pin["until"]), now),
    )


def who(pin: Mapping[str, Any]) -> str:
    """The holder, or the process behind a hold or a use where it can be seen."""
    if pin["kind"] == "pin":
        uid = "" if pin["uid"] is None else f" (uid {pin['uid']})"
        return f"{pin['holder']}{uid}"
    if pin["pid"] is None:
        return "a process out of sight"
    return f"{pin['process'] or 'process'} ({pin['pid']})"


def until(pin: Mapping[str, Any], instant: float | None, now: float) -> str:
    if pin["forever"]:
        return "forever"
    if instant is not None:
        return ahead(instant, now)
    return "unpinned" if pin["kind"] == "pin" else "it ends"
