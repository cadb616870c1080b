"""``weightd get KEY``: the path, and nothing else."""

from __future__ import annotations

from weightd.cli.exits import Exit
from weightd.cli.output import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from weightd.cli.reaching import add_common, add_key

    add_key(parser)
    add_common(parser)
    parser.epilog = (
        "Counts as a use. Exits 3 when the model is not here. "
        'flock -s "$(weightd get KEY)" COMMAND keeps it while COMMAND lives.'
    )


def run(arguments: argparse.Namespace) -> int:
    if not arguments.json:
        return say_path(arguments.key, arguments.socket)
    from weightd.cli.output import say_json
    from weightd.cli.reaching import client_of
    from weightd.client.calls import get

    with client_of(arguments) as client:
        say_json(client.told_here(client.document(get(arguments.key))))
    return Exit.OK


def asked_plainly(given: Sequence[str]) -> tuple[str, str | None] | None:
    """The key and the socket of ``KEY [--socket PATH]``; None of all else, which takes a parser."""
    keys, socket = [], None
    words = iter(given)
    for word in words:
        if word == "--socket":
            socket = next(words, "-")
            if socket.startswith("-"):
                return None
        elif word.startswith("-"):
            return None
        else:
            keys.append(word)
    return (keys[0], socket) if len(keys) == 1 else None


def say_path(key: str, socket: str | None) -> int:
    """Print where a model is.  The client's own way to ask, without its other calls."""
    from weightd.client.asking import Asking
    from weightd.client.blocking import Driver, Transport
    from weightd.client.doors import places_of
    from weightd.client.lookup import path
    from weightd.client.mount import Mount

    transport = Transport(places_of(socket))
    try:
        say(Driver(transport).run(path(Asking(), Mount(None), key)))
    finally:
        transport.close()
    return Exit.OK
