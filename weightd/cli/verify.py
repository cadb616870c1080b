"""``weightd verify [KEY ...]``: read models to the last byte, and say what is damaged."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weightd.cli.exits import Exit, exit_of
from weightd.cli.output import note, say, say_json
from weightd.cli.printing import say_table
from weightd.cli.reaching import add_common, client_of
from weightd.cli.tables import Column
from weightd.cli.watching import Watching
from weightd.cli.words import count, duration
from weightd.units import format_bytes

if TYPE_CHECKING:
    from weightd.cli.reaching import Caller

COLUMNS: Final = (
    Column("KEY", pliant=True),
    Column("FOUND"),
    Column("READ", right=True, rank=1),
    Column("TOOK", right=True, rank=2),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "keys", metavar="KEY", nargs="*", help="the models to read; all when left out"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_common(parser)
    parser.epilog = (
        "Reads and hashes every byte, when nobody else wants the disk; one that is evicted "
        "meanwhile is 'gone'. What is damaged is answered no more and goes when nothing keeps it; "
        "the exit code is 1 then. Ctrl-C ends the reading."
    )


class Result(NamedTuple):
    """What came of one model: what was ``found`` in a word or two, and the daemon's last line."""

    key: str
    found: str
    read: int
    seconds: float
    exit: int = Exit.OK
    told: Any = None
    problem: str | None = None


def run(arguments: argparse.Namespace) -> int:
    results: list[Result] = []
    with client_of(arguments) as client:
        keys = arguments.keys or [one["key"] for one in client.models_told()]
        try:
            for key in keys:
                results.append(_verified(client, key, arguments))  # noqa: PERF401 - one may raise
        finally:
            # Also when it was ended, or the daemon has: what was found before is told.
            results.sort(key=lambda one: _ORDER.get(one.found, 1))
            if arguments.json:
                say_json({"models": [_document(one) for one in results]})
            elif results or not keys:
                _say(results)
    return _exit(results)


_ORDER: Final = {"whole": 0, "damaged": 2}
"""What is to be seen stands last."""


def _verified(client: Caller, key: str, arguments: argparse.Namespace) -> Result:
    """Have one model read.  Raises Unreachable."""
    from weightd.client.faults import Unreachable
    from weightd.client.verifying import verified_document
    from weightd.errors import GenerationGone, NotResident, WeightdError

    began = time.monotonic()
    with Watching("verification", key, quiet=arguments.quiet) as watching:
        try:
            told = client.run(verified_document(client.asking, key), watching.show)
        except Unreachable:
            raise
        except WeightdError as error:
            spent = time.monotonic() - began
            # Of all that are here it is no failure when one has left before its turn.
            left = not arguments.keys and isinstance(error, GenerationGone | NotResident)
            found = "gone" if left else error.code
            code = Exit.OK if left else exit_of(error.code)
            return Result(key, found, watching.done, spent, code, problem=str(error))
    spent = time.monotonic() - began
    code = Exit.ERROR if told["outcome"] == "damaged" else Exit.OK
    return Result(key, told["outcome"], told["verification"]["bytes_done"], spent, code, told)


def _exit(results: list[Result]) -> int:
    """That of damage before all others, then the first that is not well."""
    if any(one.found == "damaged" for one in results):
        return Exit.ERROR
    return next((one.exit for one in results if one.exit), Exit.OK)


def _document(result: Result) -> dict[str, Any]:
    told = None if result.told is None else result.told["verification"]
    return {
        "key": result.key,
        "outcome": result.found,
        "seconds": round(result.seconds, 3),
        "detail": result.problem,
        "verification": told,
    }


def _say(results: list[Result]) -> None:
    rows = [(one.key, one.found, format_bytes(one.read), duration(one.seconds)) for one in results]
    say_table(COLUMNS, rows, "no models here yet: weightd put, weightd fetch")
    for one in results:
        if one.exit and one.problem is not None:
            note(one.problem)
        if one.found == "damaged":
            say("\n" + "\n".join(damage(one.told["verification"])))
    if results:
        found = Counter(one.found for one in results)
        kinds = ", ".join(f"{number} {kind}" for kind, number in found.items())
        read = format_bytes(sum(one.read for one in results))
        gap = "\n" if found["damaged"] else ""
        say(f"{gap}{count(len(results), 'model')}, {read} read: {kinds}")


def damage(told: Any) -> list[str]:
    """What is damaged of a model, file by file, and what becomes of it."""
    lines = [f"{told['key']} is damaged, and answered no more:"]
    for flaw in told["damaged"]:
        lines.append(f"  {flaw['problem']}: {flaw['reason']}")
        if flaw["actual"] not in (None, flaw["expected"]):
            lines += [f"    published {flaw['expected']}", f"    is        {flaw['actual']}"]
    if told["shared"]:
        lines.append(f"  with it go those that share such a file: {', '.join(told['shared'])}")
    if told["kept"]:
        lines.append(
            "  it stays on disk for who has it (weightd pins), and may come anew after that"
        )
    else:
        lines.append("  it is gone (weightd evictions); have it fetched or put anew")
    return lines
