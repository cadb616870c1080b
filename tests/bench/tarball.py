"""A model of many files as one tar stream by curl, against unpacking, verifying and flushing it."""

from __future__ import annotations

import os
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import processes
from tests.bench.commands import HASHERS, absent, run
from tests.bench.figures import Row
from tests.bench.place import remove, room, write_random
from tests.bench.processes import Server, be_rid_of
from tests.bench.scenario import Bench
from tests.bench.sizes import MIB
from tests.bench.turns import order

_KEY: Final = "bench/tar"


def measure(bench: Bench) -> list[Row]:
    """Bytes per second; the archive is in the page cache, what comes out of it new each time."""
    if missing := absent("curl", "tar", "sha256sum", "openssl", "sync"):
        bench.notes.append(f"The tar stream was left out: there is no {missing} here.")
        return []
    count, each = bench.sizes.members, bench.sizes.member
    size = count * each
    scenario = f"A put of {count} x {each / 1e6:,.0f} MB as tar, flushed"
    rows = {
        hasher: Row(scenario, "curl -T", f"tar x, {hasher}, sync", "MB/s", aim=">= 1")
        for hasher in HASHERS
    }
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "tar"))
        door = bench.sockets / "tar.sock"
        daemon = stack.enter_context(processes.daemon(place / "root", door, size + 64 * MIB))
        archive = _pack(place, count, each)
        for number in range(bench.sizes.rounds):
            took = {
                who: _unpack(archive, place / "copy", who) if who else _put(daemon, archive)
                for who in order(("", *HASHERS), number)
            }
            for hasher, row in rows.items():
                row.add(size / took[""], size / took[hasher])
            bench.say(f"tar: round {number + 1} of {bench.sizes.rounds}, {took['']:.1f} s")
    return list(rows.values())


def _pack(place: Path, count: int, each: int) -> Path:
    """An archive of random files that were only here to be packed."""
    archive, member = place / "archive.tar", place / "member"
    with tarfile.open(archive, "w") as tar:
        for number in range(1, count + 1):
            write_random(member, each)
            tar.add(member, f"model-{number:05}-of-{count:05}.safetensors")
    member.unlink()
    return archive


def _put(daemon: Server, archive: Path) -> float:
    os.sync()
    seconds = run(
        *("curl", "-sSf", "--unix-socket", daemon.socket, "-T", archive, "-o", os.devnull),
        *("-H", "Content-Type: application/x-tar", f"http://localhost/v1/models/{_KEY}"),
    )
    be_rid_of(daemon, archive.parent / "root", _KEY)
    return seconds


def _unpack(archive: Path, copy: Path, hasher: str) -> float:
    os.sync()
    copy.mkdir()
    seconds = run("tar", "xf", archive, "-C", copy)
    files = sorted(copy.iterdir())
    seconds += run(*HASHERS[hasher], *files) + run("sync", *files, copy)
    remove(copy)
    return seconds
