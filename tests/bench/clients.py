"""What weightd's fetch is held against: programs that bring files here, and what is left to do.

A download is neither verified nor flushed; a hasher and ``sync`` make it the
same work as a fetch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from tests.bench.client import Unexpected
from tests.bench.commands import HASHERS, run
from tests.bench.models import BUCKET, Model, Servers
from tests.bench.place import remove
from tests.parts import program

ARIA2C: Final = ("aria2c", "-x8", "-s8", "--file-allocation=none", "--no-conf", "-q")


@dataclass(frozen=True, slots=True)
class Job:
    """One model to be brought from one kind of server into a new directory."""

    servers: Servers
    kind: str
    model: Model
    directory: Path

    def urls(self) -> list[tuple[str, str]]:
        """Each file's name and address."""
        return [(path, self.servers.url(self.kind, self.model, path)) for path in self.model.paths]


Client: TypeAlias = Callable[[Job], float]
"""Brings a model; the seconds that it took."""


def curl(job: Job) -> float:
    """All files by one curl, one after the other on one connection."""
    given = [part for path, url in job.urls() for part in ("-o", job.directory / path, url)]
    return run("curl", "-sSf", *given)


def aria2c(job: Job) -> float:
    """All files by one aria2c, with eight connections for each."""
    listed = job.directory.with_suffix(".list")
    listed.write_text("".join(f"{url}\n  out={path}\n" for path, url in job.urls()))
    return run(*ARIA2C, "-d", job.directory, "-i", listed)


def snapshot(job: Job) -> float:
    """All files by the hub's own client."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.snapshot", f"bench/{job.model.name}", job.directory],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, **job.servers.environment},
        cwd=Path(__file__).resolve().parents[2],
    )
    return float(done.stdout)


def s5cmd(job: Job) -> float:
    """All objects by one s5cmd, as it comes: five parts of each at a time."""
    endpoint = ("--no-sign-request", "--endpoint-url", job.servers.s3)
    source = f"s3://{BUCKET}/{job.model.name}/*"
    command = program("s5cmd") or "s5cmd"
    return run(command, *endpoint, "cp", source, f"{job.directory}/")


CLIENTS: Final[dict[str, Client]] = {
    "curl": curl,
    "aria2c -x8": aria2c,
    "s5cmd": s5cmd,
    "snapshot_download": snapshot,
}


class Brought(NamedTuple):
    """Seconds of a download, of its flush, and of its verification in two ways."""

    download: float
    sync: float
    sha256sum: float
    openssl: float

    @property
    def steps(self) -> dict[str, float]:
        """What was done, in words, and how long that takes."""
        flushed = self.download + self.sync
        return {
            ", sha256sum, sync": flushed + self.sha256sum,
            ", openssl sha256, sync": flushed + self.openssl,
            "": self.download,
        }


def bring(client: str, job: Job) -> Brought:
    """Bring a model, flush and verify it; nothing of it stays."""
    job.directory.mkdir()
    try:
        os.sync()
        download = CLIENTS[client](job)
        files = sorted(path for path in job.directory.rglob("*.safetensors") if path.exists())
        sync = run("sync", *files)
        seconds = []
        for hasher in HASHERS.values():
            begun = time.perf_counter()
            done = subprocess.run([*hasher, *files], check=True, stdout=subprocess.PIPE, text=True)
            seconds.append(time.perf_counter() - begun)
            if tuple(line.split()[0] for line in done.stdout.splitlines()) != job.model.sha256s:
                raise Unexpected(f"{client} brought something else than {job.model.name}")
        return Brought(download, sync, *seconds)
    finally:
        remove(job.directory)
