"""``weightd pin KEY``: a claim in the name of a holder."""

from __future__ import annotations

import argparse
import os

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.reaching import add_common, add_key, client_of, read_holder, read_ttl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_key(parser)
    add_holder(parser)
    parser.add_argument(
        "--ttl",
        metavar="DURATION",
        type=read_ttl,
        help="let it lapse after so long unless it is renewed by the same command, such as 1h; "
        "'forever' outlives a reboot of the node; left out, it lasts until it is taken back",
    )
    parser.add_argument(
        "--generation", metavar="DIGEST", help="pin exactly this copy, or fail when it is gone"
    )
    add_common(parser)
    parser.epilog = "Prints the path, which is safe to use for as long as the pin stands."


def add_holder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--holder",
        metavar="NAME",
        type=read_holder,
        default=None,
        help="in whose name, a replica's for example; else WEIGHTD_HOLDER, else cli:USER",
    )


def holder_of(arguments: argparse.Namespace) -> str:
    """Who pins: the one that is named, or the user at this terminal."""
    from weightd.client.holders import named_holder

    given: str | None = arguments.holder or named_holder()
    return given or f"cli:{_user()}"


def _user() -> str:
    import pwd

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def run(arguments: argparse.Namespace) -> int:
    from weightd.client.calls import pin

    request = pin(holder_of(arguments), arguments.key, arguments.ttl, arguments.generation)
    with client_of(arguments) as client:
        told = client.document(request)
        told = client.told_here(told)
    if arguments.json:
        say_json(told)
    else:
        say(told["path"])
    return Exit.OK
