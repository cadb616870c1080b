"""Find the command and hand over to its module."""

from __future__ import annotations

import sys

from weightd.cli.guard import guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "run the daemon that owns a directory of models",
    "run": "keep models here for as long as a command lives, and become it",
    "get": "print where a model is",
    "ls": "list the models that are here",
    "put": "put a file or a directory",
    "adopt": "take models of a hub's cache on this disk, without copying; list what is there",
    "fetch": "have a model here, from its origin; list and end fetches",
    "pin": "keep a model from being evicted",
    "unpin": "let a pin go",
    "rm": "evict models now",
    "status": "show the budget, who occupies it, and how the daemon is",
    "top": "watch the node, live",
    "pins": "show who keeps what",
    "evictions": "show what went, when, why and for whom",
    "warm": "read models into memory before they are mapped",
    "verify": "read models to the last byte, and say what is damaged",
    "label": "print the label of nodes that have a model, for an affinity",
    "completion": "print the completions for a shell",
}
"""Each command, in the module of its name beside this one, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and answer its exit code; argparse exits 2 by itself."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["get"]:
        # What every replica asks before it starts, and argparse takes longer than the answer.
        from weightd.cli import get

        asked = get.asked_plainly(given[1:])
        if asked is not None:
            return guarded(lambda: get.say_path(*asked))
    from weightd.cli.parsing import run_parsed

    return run_parsed(given)
