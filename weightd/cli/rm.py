"""``weightd rm KEY``: evict now."""

from __future__ import annotations

import argparse

from weightd.cli.exits import Exit, exit_of
from weightd.cli.output import note, say_json
from weightd.cli.reaching import add_common, client_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("keys", metavar="KEY", nargs="+", help="the models to evict")
    add_common(parser)
    parser.epilog = (
        "What is pinned, held or in use stays, and so does an arrival under way. With several "
        "keys, one that cannot go does not keep the others."
    )


def run(arguments: argparse.Namespace) -> int:
    from weightd.client.faults import Unreachable
    from weightd.errors import WeightdError

    code = Exit.OK
    removed = []
    with client_of(arguments) as client:
        for key in arguments.keys:
            try:
                client.delete(key)
            except Unreachable:
                raise
            except WeightdError as error:
                note(str(error))
                code = code or exit_of(error.code)
            else:
                removed.append(key)
    if arguments.json:
        say_json({"removed": removed})
    return code
