"""``weightd label KEY``: the label of a node that has a model, for an affinity."""

from __future__ import annotations

import argparse

from weightd.cli.exits import Exit
from weightd.cli.output import say
from weightd.keys import key_fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="the model's key: NAME or NAME@REVISION")
    parser.epilog = (
        "Nodes carry it, with the value true, where the setting node_labels is read by Node "
        "Feature Discovery. No daemon is asked."
    )


def run(arguments: argparse.Namespace) -> int:
    from weightd.labels import label_of

    fault = key_fault(arguments.key)
    if fault is not None:
        from weightd.errors import InvalidKey

        raise InvalidKey(key=arguments.key, reason=fault)
    say(label_of(arguments.key))
    return Exit.OK
