"""Start-up with many models, against looking at every name and status in the same tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench import processes
from tests.bench.figures import Row
from tests.bench.place import room
from tests.bench.scenario import Bench
from tests.bench.sizes import GIB
from weightd.model import FileEntry, Key, Manifest, content_digest
from weightd.store import layout, manifest_file
from weightd.store.manifest_file import Record, Stamp

_BARE: Final = "scandir and stat of the whole tree"


def measure(bench: Bench) -> list[Row]:
    """From the process's start to its first answer, and to one that it is ready.

    The tree's pages are in memory for both sides.
    """
    models = f"{bench.sizes.models:,} models"
    scenario = f"Start-up with {models}"
    listening = Row(scenario, "listening, from the process's start", _BARE, "s")
    ready = Row(scenario, "ready, from the process's start", _BARE, "s")
    share = Row(scenario, "what the models add to an empty start", _BARE, "s", aim="<= 1.5")
    memory = Row(scenario, "resident memory once ready", "the same, empty root", "MB")
    with ExitStack() as stack:
        place = stack.enter_context(room(bench.place, "startup"))
        empty, full = place / "empty", place / "full"
        make_root(empty, bench.sockets / "first.sock")
        shutil.copytree(empty, full)
        bench.say(f"start-up: making {models}")
        for number in range(bench.sizes.models):
            lay_out(full, number, bench.sizes.files)
        for number in range(bench.sizes.rounds):
            few, many = _start(bench, empty), _start(bench, full)
            bare = _look(full)
            listening.add(many.listening, bare)
            ready.add(many.ready, bare)
            share.add(many.ready - few.ready, bare)
            memory.add(many.memory, few.memory)
            bench.say(f"start-up: round {number + 1} of {bench.sizes.rounds}, {many.ready:.2f} s")
    return [listening, ready, share, memory]


class _Start(NamedTuple):
    """Seconds to the first answer, to the one that it is ready, and the resident bytes then."""

    listening: float
    ready: float
    memory: float


def _start(bench: Bench, root: Path) -> _Start:
    with processes.daemon(root, bench.sockets / "start.sock", 100 * GIB) as server:
        return _Start(server.listening, server.ready, server.resident())


def _look(root: Path) -> float:
    """Seconds to list every directory and take the status of every entry."""
    begun = time.perf_counter()
    waiting = [os.fspath(root)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return time.perf_counter() - begun


def make_root(path: Path, socket: Path) -> None:
    """A root without a model but with its databases, without which pins would count as lost."""
    with processes.daemon(path, socket, GIB):
        pass


def key_of(number: int) -> str:
    """The key of the model that is laid out as the ``number``th."""
    return f"bench/model-{number:05}@main"


def lay_out(root: Path, number: int, files: int) -> None:
    """A published model as a put leaves it, without the flushes that would make this slow."""
    key = Key.parse(key_of(number))
    contents = {f"part-{one:05}.bin": f"{number} {one}\n".encode() for one in range(files)}
    entries = tuple(
        FileEntry(path, len(content), hashlib.sha256(content).hexdigest())
        for path, content in contents.items()
    )
    manifest = Manifest(key, content_digest(entries), entries, number + 1, time.time())
    home = root / layout.MODELS / layout.generation_name(manifest.id)
    path = home / key.last_segment
    path.mkdir(parents=True)
    stamps = []
    for name, content in contents.items():
        file = path / name
        file.write_bytes(content)
        file.chmod(0o444)
        stamps.append(Stamp.of(file.stat()))
    (home / layout.MANIFEST).write_bytes(manifest_file.encode(Record(manifest, tuple(stamps))))
    path.chmod(0o555)
