"""``weightd get KEY``: the path, and nothing else."""

from __future__ import annotations

import argparse

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.reaching import add_common, add_key, client_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_key(parser)
    add_common(parser)
    parser.epilog = (
        "Counts as a use. Exits 3 when the model is not here. "
        'flock -s "$(weightd get KEY)" COMMAND keeps it while COMMAND lives.'
    )


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        if arguments.json:
            from weightd.client.calls import get

            say_json(client.told_here(client.document(get(arguments.key))))
        else:
            say(client.path(arguments.key))
    return Exit.OK
