"""``weightd unpin KEY``: let a pin go."""

from __future__ import annotations

import argparse

from weightd.cli.exits import Exit
from weightd.cli.output import say_json
from weightd.cli.pin import add_holder, holder_of
from weightd.cli.reaching import add_common, add_key, client_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_key(parser)
    add_holder(parser)
    add_common(parser)
    parser.epilog = "weightd pins shows who pins what."


def run(arguments: argparse.Namespace) -> int:
    holder = holder_of(arguments)
    with client_of(arguments) as client:
        client.unpin(holder, arguments.key)
    if arguments.json:
        say_json({"key": arguments.key, "holder": holder})
    return Exit.OK
