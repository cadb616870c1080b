"""``weightd put KEY PATH``: put a file or a directory."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from weightd.cli.exits import Exit
from weightd.cli.following import bar
from weightd.cli.output import say, say_json
from weightd.cli.reaching import Caller, add_common, add_key, add_wait, client_of
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
    adopting = parser.add_argument_group(
        "without copying", "what is on the filesystem of weightd's root is moved into it"
    )
    adopting.add_argument(
        "--adopt",
        action="store_true",
        help="rename the files instead of copying them: they are gone from PATH, and weightd's to "
        "evict; what has several names stays, and its blocks are shared where the filesystem can",
    )
    adopting.add_argument("--keep", action="store_true", help="leave all files, and share blocks")
    adopting.add_argument(
        "--sha256sums",
        metavar="FILE",
        help="a list as sha256sum writes it: what it has is not read, nor is a large file of a "
        "download by hf to a directory; the rest is read once, to be hashed",
    )
    adopting.add_argument(
        "--check", action="store_true", help="read the files that are listed, too"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_common(parser)
    parser.epilog = (
        "Links count as what they point at, and none is adopted. Prints the path once the model is "
        "here."
    )


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        told = client.told_here((_adopted if arguments.adopt else _put)(client, arguments))
    if arguments.json:
        say_json(told)
    else:
        say(told["path"])
    return Exit.OK


def _adopted(client: Caller, arguments: argparse.Namespace) -> Any:
    from weightd.client.adopting import adopt_document
    from weightd.client.offering import offered

    if arguments.create_only or arguments.file or arguments.sha256:
        flags = "--create-only, --file and --sha256"
        from weightd.errors import InvalidRequest

        raise InvalidRequest(what="--adopt", reason=f"it goes with none of {flags}")
    offering = offered(arguments.path, arguments.sha256sums, arguments.keep, arguments.check)
    return client.run(adopt_document(client.asking, arguments.key, offering, arguments.wait))


def _put(client: Caller, arguments: argparse.Namespace) -> Any:
    from weightd.client.calls import PutTerms
    from weightd.client.putting import put_document

    if arguments.keep or arguments.check or arguments.sha256sums:
        from weightd.errors import InvalidRequest

        raise InvalidRequest(what="--keep, --check and --sha256sums", reason="they go with --adopt")
    terms = PutTerms(
        file=arguments.file,
        sha256=arguments.sha256,
        create_only=arguments.create_only,
        wait=arguments.wait,
    )
    quiet = arguments.quiet or arguments.json
    with _Bar(arguments.key, quiet) as bar:
        flow = put_document(client.asking, client.mount, arguments.key, arguments.path, terms)
        return client.run(flow, bar.show)


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
