"""``weightd adopt CACHE [REPOSITORY[@REVISION]]``: a cache of the hub's client, listed or taken."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import say, say_json
from weightd.cli.printing import say_table
from weightd.cli.reaching import add_common, add_wait, client_of
from weightd.cli.tables import Column
from weightd.cli.words import count
from weightd.units import format_bytes

if TYPE_CHECKING:
    from weightd.client.hubcache import Snapshot

COLUMNS: Final = (
    Column("REPOSITORY", pliant=True),
    Column("REVISION"),
    Column("REFS", rank=2, pliant=True),
    Column("SIZE", right=True),
    Column("FILES", right=True, rank=3),
    Column("STATE", pliant=True),
)

_COMMIT_SHOWN: Final = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cache", metavar="CACHE", help="the cache, such as ~/.cache/huggingface/hub"
    )
    parser.add_argument(
        "wanted",
        metavar="REPOSITORY[@REVISION]",
        nargs="?",
        help="what to take: a ref or the beginning of a commit, else main or the only one; "
        "left out, it lists what is there",
    )
    parser.add_argument(
        "--as", dest="key", metavar="KEY", help="under which key; else as it was asked for"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave it in the cache, and share its blocks"
    )
    parser.add_argument(
        "--copy", action="store_true", help="copy what has to stay and cannot be shared"
    )
    parser.add_argument(
        "--partial", action="store_true", help="take one that is not whole as it is"
    )
    parser.add_argument(
        "--check", action="store_true", help="read every file, also those whose sha256 is known"
    )
    add_wait(parser)
    add_common(parser)
    parser.epilog = (
        "Nothing is copied: files are renamed into weightd's root, on the same filesystem, and the "
        "revision is gone from the cache; files that another revision uses, too, stay, and their "
        "blocks are shared, where the filesystem can (xfs, btrfs), or copied, if small. Large "
        "files have their sha256 for a name and are not read. From then on weightd may evict it."
    )


def run(arguments: argparse.Namespace) -> int:
    from weightd.client import hubcache

    found = hubcache.snapshots(arguments.cache)
    if arguments.wanted is None:
        _list(found, arguments)
        return Exit.OK
    snapshot = hubcache.chosen(found, arguments.wanted, arguments.cache)
    told = _take(found, snapshot, arguments)
    if arguments.json:
        say_json(told)
    else:
        say(told["path"])
    return Exit.OK


def _take(found: list[Snapshot], snapshot: Snapshot, arguments: argparse.Namespace) -> Any:
    """The record of what was taken."""
    from weightd.client import hubcache
    from weightd.client.adopting import adopt_document
    from weightd.client.offering import Offering

    def offered() -> Offering:
        offering = hubcache.offered(
            arguments.cache, snapshot, found, partial=arguments.partial, copy=arguments.copy
        )
        if arguments.keep:
            offering = offering.kept(copy=arguments.copy)
        return offering.checked() if arguments.check else offering

    key = arguments.key or arguments.wanted
    with client_of(arguments) as client:
        flow = adopt_document(client.asking, key, offered, arguments.wait)
        return client.told_here(client.run(flow))


def _list(found: list[Snapshot], arguments: argparse.Namespace) -> None:
    if arguments.json:
        say_json({"snapshots": [_told(one) for one in found]})
        return
    say_table(COLUMNS, [_row(one) for one in found], f"there is no model in {arguments.cache}")
    if found:
        places = {file.place: file.size or 0 for one in found for file in one.files}
        say(f"{count(len(found), 'revision')}, {format_bytes(sum(places.values()))}")


def _row(one: Snapshot) -> tuple[str, ...]:
    return (
        one.repository,
        one.commit[:_COMMIT_SHOWN],
        ", ".join(one.refs),
        format_bytes(one.size),
        str(len(one.files)),
        "; ".join(one.faults) or "whole",
    )


def _told(one: Snapshot) -> dict[str, object]:
    return {
        "repository": one.repository,
        "revision": one.commit,
        "refs": list(one.refs),
        "path": one.path,
        "bytes": one.size,
        "files": [{"path": file.name, "bytes": file.size} for file in one.files],
        "whole": not one.faults,
        "faults": list(one.faults),
    }
