"""Many runs of few models race evictions: none ever begins on a path that is gone or partial.

A dozen by default; `make test-storm` has two hundred (WEIGHTD_RUNS).
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.cli.commands import Shell
from tests.polling import until
from tests.system.daemon import GONE, Client, Daemon, running
from weightd.cli.exits import Exit

RUNS: Final = int(os.environ.get("WEIGHTD_RUNS", "12"))
AT_ONCE: Final = 8
MODELS: Final = 10
FILES: Final = 3
FILE_BYTES: Final = 300_000
MODEL_BYTES: Final = FILES * FILE_BYTES

CAPACITY: Final = 8 * MODEL_BYTES
"""Fewer than there are models, and than are held at once with those that storm."""

CHECK: Final = """
import hashlib, os, sys
path, expected = sys.argv[1:]
found = hashlib.sha256()
for name in sorted(os.listdir(path)):
    found.update(name.encode() + open(os.path.join(path, name), "rb").read())
sys.exit(0 if found.hexdigest() == expected else 9)
"""
"""Exits 9, or dies of an error, when the path is not the whole model."""


def make(origins: Path, number: int) -> tuple[str, str]:
    """A model at its origin: its source, and what a reader of it must find."""
    place = origins / f"m{number}"
    place.mkdir()
    found = hashlib.sha256()
    for file in range(FILES):
        body = random.Random(number * FILES + file).randbytes(FILE_BYTES)
        (place / f"part-{file}").write_bytes(body)
        found.update(f"part-{file}".encode() + body)
    return f"file://{place}", found.hexdigest()


def storm(client: Client, over: threading.Event) -> int:
    """Evict whatever may go, all the time; how many puts were made."""
    made = 0
    while not over.is_set():
        try:
            client.call("PUT", f"/v1/models/storm/{made % 3}", os.urandom(MODEL_BYTES))
        except GONE:
            return made
        made += 1
    return made


def run_once(shell: Shell, number: int, source: str, expected: str) -> str:
    """One run; how it ended, which must be well."""
    ran = subprocess.run(
        shell.argv(
            *("run", f"m{number}", "--from", source, "--wait", "60s", "-q", "--"),
            *(sys.executable, "-c", CHECK, "{path}", expected),
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=shell.environment,
    )
    if ran.returncode == Exit.OK:
        return ""
    return f"m{number}: {ran.returncode}: {ran.stderr}"


def race(daemon: Daemon, models: list[tuple[str, str]]) -> list[str]:
    """What went wrong with each of the runs."""
    shell, over = Shell(daemon.socket), threading.Event()
    chosen = [random.Random(seed).randrange(MODELS) for seed in range(RUNS)]
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(AT_ONCE) as pool:
        storming = beside.submit(storm, daemon.client, over)
        try:
            ends = list(pool.map(lambda one: run_once(shell, one, *models[one]), chosen))
        finally:
            over.set()
        assert storming.result() > 0
    return [end for end in ends if end]


def test_none_begins_on_a_path_that_is_gone_or_partial(root: Path, tmp_path: Path) -> None:
    origins = tmp_path / "origins"
    origins.mkdir()
    models = [make(origins, number) for number in range(MODELS)]
    options = ("--import-roots", str(origins))
    with running(root, capacity=CAPACITY, options=options) as daemon:
        assert race(daemon, models) == []
        assert daemon.client.status()["evictions"] > 0
        # And nothing is left of them: no lease, no hold.
        until(
            lambda: not daemon.client.get("/v1/pins")["pins"], lambda: daemon.client.get("/v1/pins")
        )
