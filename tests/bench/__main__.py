"""``python -m tests.bench``: the whole benchmark, or parts of it."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from tests.bench.client import Unexpected
from tests.bench.figures import Row
from tests.bench.machine import facts
from tests.bench.place import filesystem, free_bytes, place, touch_memory
from tests.bench.plot import plot
from tests.bench.report import Report
from tests.bench.scenario import Bench
from tests.bench.scenarios import SCENARIOS
from tests.bench.sizes import FULL, QUICK, Sizes
from weightd.units import format_bytes, parse_bytes

_COUNTS: Final = {
    "rounds": "how often everything is measured",
    "requests": "hits in a turn",
    "pins": "pins in a turn",
    "clients": "clients that pin at once",
    "models": "models at start-up",
    "files": "files in each of them",
    "starts": "starts of a command in a turn",
    "members": "files of the model that is put as a tar stream",
    "scale": "models that the daemon has at most where their number is what counts",
    "held": "pins beside those",
    "connections": "connections beside those",
    "puts": "small puts between which memory is compared",
    "shards": "files of the model of many files that is fetched",
}
_BYTES: Final = {
    "put": "file that is put",
    "member": "each of the files that are put as a tar stream",
    "content": "file that is read",
    "hands": "directory that is uploaded, put and adopted",
    "stream": "file that streams in beside hits",
    "unlink": "file that is unlinked beside hits",
    "fetch": "one file that is fetched",
    "shard": "each of the many files that are fetched",
    "far": "file that is fetched over a distance",
    "warm": "memory that is touched before",
}


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if options.plot is not None and not options.plot.parent.is_dir():
        parser.error(f"there is no directory {options.plot.parent}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        report = Report.read(options.source) if options.source else _measure(options)
    except KeyboardInterrupt:
        _say("interrupted; what was made is removed")
        return 130
    except Unexpected as unexpected:
        _say(f"weightd: {unexpected}")
        return 1
    if options.json is not None:
        report.write(options.json)
    if options.plot is not None:
        options.plot.write_text(plot(report.rows))
    print(report.markdown() if options.markdown else f"\n{report.text()}")
    return 0


def _measure(options: argparse.Namespace) -> Report:
    begun = time.perf_counter()
    with place(options.dir) as home, tempfile.TemporaryDirectory(prefix="weightd-") as sockets:
        wanted = _sizes(options)
        bench = Bench(wanted.within(free_bytes(home)), home, Path(sockets), _say, [])
        machine = facts(home)
        _note_odd(bench, wanted, home)
        _say(f"touching {format_bytes(touch_memory(bench.sizes.warm))} of memory")
        rows: list[Row] = []
        for name in options.only:
            since = time.perf_counter()
            rows += SCENARIOS[name](bench)
            _say(f"{name}: took {time.perf_counter() - since:.0f} s")
    bench.notes.append(f"It took {time.perf_counter() - begun:.0f} s.")
    return Report(machine, bench.sizes.words(), rows, bench.notes)


def _interrupt(*_: object) -> NoReturn:
    """End the run, once: what follows must not keep it from removing what it made."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measure weightd beside its rivals."
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: under two minutes")
    parser.add_argument(
        "--only", type=_names, default=tuple(SCENARIOS), help=f"some of {','.join(SCENARIOS)}"
    )
    parser.add_argument("--json", type=Path, help="write every figure of every round there, too")
    parser.add_argument(
        "--plot", type=Path, help="draw the ratios that something is aimed at, as SVG"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print those ratios as a table in Markdown"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, help="measure nothing: take what --json wrote there"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("/var/tmp"),
        help="where the files go meanwhile: the disk that is measured (default %(default)s)",
    )
    for name, what in _COUNTS.items():
        parser.add_argument(f"--{name}", type=int, help=what)
    for name, what in _BYTES.items():
        parser.add_argument(f"--{name}", type=parse_bytes, help=f"size of the {what}, as 2GiB")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in SCENARIOS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(SCENARIOS)}")
    return names


def _sizes(options: argparse.Namespace) -> Sizes:
    """What was asked for."""
    given = {name: getattr(options, name) for name in (*_COUNTS, *_BYTES)}
    return replace(
        QUICK if options.quick else FULL,
        **{name: value for name, value in given.items() if value is not None},
    )


def _note_odd(bench: Bench, wanted: Sizes, home: Path) -> None:
    """Say below the table what makes its figures mean less."""
    if bench.sizes != wanted:
        bench.notes.append(
            f"Files were shrunk to {bench.sizes.disk / wanted.disk:.0%}: a run needs "
            f"{format_bytes(wanted.disk)} and some to spare, and {format_bytes(free_bytes(home))} "
            "are free."
        )
    if filesystem(home) in ("tmpfs", "ramfs"):
        bench.notes.append("The files are in memory, where a flush costs nothing; give a --dir.")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
