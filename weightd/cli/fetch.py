"""``weightd fetch KEY SOURCE``: have a model here, from its origin."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from weightd.cli.exits import Exit
from weightd.cli.output import note, say, say_json
from weightd.cli.reaching import add_common, add_wait, client_of, read_holder, read_ttl
from weightd.cli.tables import Column

if TYPE_CHECKING:
    from weightd.cli.reaching import Caller

COLUMNS: Final = (
    Column("ID"),
    Column("KEY", pliant=True),
    Column("STATE"),
    Column("DONE", right=True, rank=1),
    Column("BYTES", right=True, rank=2),
    Column("RATE", right=True, rank=3),
    Column("LEFT", right=True, rank=1),
    Column("BEGUN", right=True, rank=5),
    Column("SOURCE", rank=4, pliant=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "weightd fetch KEY SOURCE [MIRROR ...] [options]\n"
        "       weightd fetch --list\n"
        "       weightd fetch --cancel ID"
    )
    parser.add_argument("key", metavar="KEY", nargs="?", help="what to call it here")
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="*",
        help="where it is: hf://org/name, s3://, gs://, az://, https://, file://; mirrors follow",
    )
    add_wait(parser)
    parser.add_argument("--digest", metavar="SHA256", help="the content that it must be")
    parser.add_argument(
        "--holder", metavar="NAME", type=read_holder, help="pin it for this holder once it is here"
    )
    parser.add_argument(
        "--ttl", metavar="DURATION", type=read_ttl, help="how long that pin stands, or 'forever'"
    )
    parser.add_argument(
        "--revalidate", action="store_true", help="ask the origin although the key is here"
    )
    parser.add_argument(
        "--credential", metavar="NAME", help="which of the daemon's credentials the origin is shown"
    )
    parser.add_argument(
        "--detach", action="store_true", help="do not stay until it is here; print the fetch's id"
    )
    parser.add_argument("--list", action="store_true", help="list the fetches of the last hour")
    parser.add_argument("--cancel", metavar="ID", help="end a fetch, for everybody")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_common(parser)
    parser.epilog = "Prints the path once the model is here. Ctrl-C leaves the fetch going on."
    parser.set_defaults(usage_error=parser.error)


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        if arguments.cancel is not None:
            return _cancel(client, arguments)
        if arguments.list:
            return _list(client, arguments)
        if arguments.key is None or not arguments.sources:
            arguments.usage_error("give a KEY and a SOURCE, or --list, or --cancel ID")
        if arguments.ttl is not None and arguments.holder is None:
            arguments.usage_error("--ttl is for a pin, and no --holder is named")
        return _fetch(client, arguments)


def _fetch(client: Caller, arguments: argparse.Namespace) -> int:
    from weightd.cli.following import Following
    from weightd.client.calls import Wanted, fetch
    from weightd.client.fetching import fetched_document

    wanted = Wanted(
        arguments.key,
        arguments.sources,
        digest=arguments.digest,
        holder=arguments.holder,
        ttl=arguments.ttl,
        revalidate=arguments.revalidate,
        credential=arguments.credential,
    )
    if arguments.detach:
        return _told(client.document(fetch(wanted, 0.0)), arguments)
    with Following(arguments.key, quiet=arguments.quiet) as following:
        flow = fetched_document(client.asking, wanted, arguments.wait)
        told = client.run(flow, following.show)
        told = client.told_here(told)
    if arguments.json:
        say_json(told)
    else:
        say(told["path"])
    return Exit.OK


def _told(told: Any, arguments: argparse.Namespace) -> int:
    """What a fetch that is not stayed for answers at once: its job, or the model."""
    if arguments.json:
        say_json(told)
    else:
        say(told["path"] if "path" in told else told["id"])
    return Exit.OK


def _list(client: Caller, arguments: argparse.Namespace) -> int:
    from weightd.cli.printing import say_table
    from weightd.client.calls import fetches
    from weightd.client.records import Job, read

    told = client.document(fetches())
    if arguments.json:
        say_json(told)
    else:
        now = time.time()
        rows = [row(read(Job, one), one["problem"], now) for one in told["fetches"]]
        say_table(COLUMNS, rows, "nothing was fetched within the hour")
    return Exit.OK


def row(job: Any, problem: Any, now: float) -> tuple[str, ...]:
    from weightd.cli.words import ago, duration, share
    from weightd.units import format_bytes

    whole = job.bytes_total
    return (
        job.id,
        job.key,
        f"{job.state}: {problem['code']}" if problem else job.state,
        share(job.bytes_done, whole) if whole else "",
        format_bytes(job.bytes_done) + (f" of {format_bytes(whole)}" if whole else ""),
        f"{format_bytes(int(job.rate))}/s" if job.rate > 0 else "",
        "" if job.eta is None else duration(job.eta),
        ago(job.created_at, now),
        job.source,
    )


def _cancel(client: Caller, arguments: argparse.Namespace) -> int:
    client.cancel(arguments.cancel)
    if arguments.json:
        say_json({"cancelled": arguments.cancel})
    else:
        note(f"fetch {arguments.cancel} is over")
    return Exit.OK
