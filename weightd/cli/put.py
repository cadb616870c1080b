"""``weightd put KEY PATH``: put a file or a directory."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.reaching import add_common, add_key, add_wait, client_of
from weightd.client.effects import Body


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_key(parser)
    parser.add_argument("path", metavar="PATH", help="the file or the directory")
    parser.add_argument(
        "--file", metavar="NAME", help="what to call a single file; else as it is called"
    )
    parser.add_argument("--sha256", metavar="DIGEST", help="what a single file must hash to")
    parser.add_argument(
        "--create-only", action="store_true", help="fail when the key is here already"
    )
    add_wait(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_common(parser)
    parser.epilog = "Links count as what they point at. Prints the path once the model is here."


def run(arguments: argparse.Namespace) -> int:
    from weightd.client.calls import PutTerms, put
    from weightd.client.packing import packed

    terms = PutTerms(
        file=arguments.file,
        sha256=arguments.sha256,
        create_only=arguments.create_only,
        wait=arguments.wait,
    )
    body, terms = packed(arguments.path, terms)
    with client_of(arguments) as client:
        shown = body if arguments.quiet or arguments.json else _shown(arguments.key, body)
        told = client.document(put(arguments.key, shown, terms))
        told = client.told_here(told)
    if arguments.json:
        say_json(told)
    else:
        say(told["path"])
    return Exit.OK


def _shown(key: str, body: Body) -> Body:
    """The same body, which shows how much of it was sent."""

    def pieces() -> Iterator[bytes]:
        import sys
        import time

        from weightd.cli.following import bar
        from weightd.cli.terminal import Status, is_utf8
        from weightd.cli.words import progress

        line, begun, sent = Status(), time.monotonic(), 0
        utf8 = is_utf8(sys.stderr)
        try:
            for piece in body.pieces():
                yield piece
                sent += len(piece)
                spent = max(time.monotonic() - begun, 1e-3)
                how = progress(sent, body.length, sent / spent)
                line.show(f"{key}  {bar(sent, body.length, utf8)}  {how}")
        finally:
            line.clear()

    return Body(pieces, body.length)
