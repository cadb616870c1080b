"""``weightd warm KEY``: read models into the page cache."""

from __future__ import annotations

import argparse

from weightd.cli.exits import Exit, exit_of
from weightd.cli.output import note, say, say_json
from weightd.cli.reaching import add_common, client_of
from weightd.cli.watching import Watching


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "keys", metavar="KEY", nargs="+", help="the models to read, one after another"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_common(parser)
    parser.epilog = (
        "The first to map a model that was read finds it in memory. The pages go when memory is "
        "wanted for something else; in a container they count to the daemon's own limit. With "
        "several keys, one that cannot be read does not keep the others. Ctrl-C ends the reading."
    )


def run(arguments: argparse.Namespace) -> int:
    from weightd.client.faults import Unreachable
    from weightd.errors import WeightdError
    from weightd.units import format_bytes

    code = Exit.OK
    told = []
    with client_of(arguments) as client:
        for key in arguments.keys:
            try:
                with Watching("reading", key, quiet=arguments.quiet) as watching:
                    warmed = client.warm(key, progress=watching.show)
            except Unreachable:
                raise
            except WeightdError as error:
                note(str(error))
                code = code or exit_of(error.code)
                continue
            told.append({"key": key, **warmed._asdict()})
            if not arguments.json:
                cached, whole = format_bytes(warmed.cached), format_bytes(warmed.bytes)
                say(f"{key}: {cached} of {whole} are in memory")
    if arguments.json:
        say_json({"warmed": told})
    return code
