"""Calls of a running daemon that the kernel's tracer fails, for as long as a test says.

A fault begins when the tracer is attached and is gone when it is detached.  What
the daemon says to its peers goes through the same calls as what it says to its
files, so that some calls are failed by path only.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.system.daemon import END_WITHIN, Daemon


@dataclass(frozen=True, slots=True)
class Fault:
    """``calls`` of the kernel's that fail; ``by_path`` says that only those on the root do.

    ``delays`` says that an arrival waits for it to end, since what was evicted
    for it does not leave the disk.
    """

    name: str
    calls: Sequence[str]
    by_path: bool = False
    delays: bool = False


FAULTS: Final = (
    Fault("open", ("openat",), by_path=True),
    Fault("write", ("write", "pwrite64", "ftruncate", "fallocate"), by_path=True),
    Fault("fsync", ("fsync", "fdatasync")),
    Fault("rename", ("rename", "renameat", "renameat2")),
    Fault("unlink", ("unlink", "unlinkat"), delays=True),
    Fault("mkdir", ("mkdirat",)),
    Fault("statvfs", ("statfs", "fstatfs")),
    Fault("stat", ("newfstatat", "statx"), by_path=True),
    Fault("list", ("getdents64",), by_path=True),
)


def _below(root: Path) -> Iterator[Path]:
    """The root and all there is below it; what vanishes meanwhile is passed by."""
    for directory, _, files in os.walk(root):
        yield Path(directory)
        yield from (Path(directory, name) for name in files)


@contextmanager
def failing(daemon: Daemon, fault: Fault, error: str, more: Iterable[Path] = ()) -> Iterator[None]:
    """Fail the calls with ``error`` (a name such as EIO) until the context is left.

    By path means on whatever is below the root when it is entered, and on ``more``.
    """
    calls = ",".join(fault.calls)
    command = ["strace", "-f", "-o", "/dev/null", "-e", "quiet=path-resolution,personality,exit"]
    command += ["-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
    if fault.by_path:
        for path in (*_below(daemon.root), *more):
            command += ["-P", str(path)]
    command += ["-p", str(daemon.process.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        try:
            told = tracer.stderr.readline()
            if "not permitted" in told:
                pytest.skip("cannot be had here, tracing is not allowed")
            assert "attached" in told, told
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(END_WITHIN)
