"""``weightd put KEY PATH``: put a file or a directory."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Self

from weightd.cli.exits import Exit
from weightd.cli.following import bar
from weightd.cli.output import say, say_json
from weightd.cli.reaching import add_common, add_key, add_wait, client_of
from weightd.cli.terminal import Status, is_utf8
from weightd.cli.words import progress

if TYPE_CHECKING:
    from weightd.client.putting import Sent


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
    from weightd.client.calls import PutTerms
    from weightd.client.putting import put_document

    terms = PutTerms(
        file=arguments.file,
        sha256=arguments.sha256,
        create_only=arguments.create_only,
        wait=arguments.wait,
    )
    quiet = arguments.quiet or arguments.json
    with client_of(arguments) as client, _Bar(arguments.key, quiet) as bar:
        flow = put_document(client.asking, client.mount, arguments.key, arguments.path, terms)
        told = client.told_here(client.run(flow, bar.show))
    if arguments.json:
        say_json(told)
    else:
        say(told["path"])
    return Exit.OK


class _Bar:
    """How much was written, on a terminal."""

    def __init__(self, key: str, quiet: bool) -> None:
        self._key = key
        self._quiet = quiet
        self._line = Status()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def show(self, sent: Sent) -> None:
        if self._quiet:
            return
        spent = max(time.monotonic() - sent.since, 1e-3)
        rate = sent.bytes / spent
        done = bar(sent.bytes, sent.whole, is_utf8(sys.stderr))
        how = progress(sent.bytes, sent.whole, rate, (sent.whole - sent.bytes) / rate)
        last = "  verifying" if sent.bytes == sent.whole else ""
        self._line.show(f"{self._key}  {done}  {how}{last}")
