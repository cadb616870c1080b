"""Commands that are measured: what each takes on the clock, and of processors."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HASHERS: Final[dict[str, tuple[str, ...]]] = {
    "sha256sum": ("sha256sum",),
    "openssl sha256": ("openssl", "dgst", "-sha256", "-r"),
}
"""Where ``sha256sum`` makes nothing of what a processor has for it, OpenSSL's is several
times as fast; so whoever is to verify by hand is tried with both."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds on the clock, and of processors."""

    seconds: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.cpu + other.cpu)


def spend(*command: str | Path) -> Cost:
    """What a command takes, which must succeed, with the children that it waited for."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(seconds, usage.ru_utime + usage.ru_stime)


def run(*command: str | Path) -> float:
    """The seconds of a command, which must succeed."""
    return spend(*command).seconds


def absent(*programs: str) -> str:
    """Which of these programs are not here, in words; "" when all are."""
    return ", ".join(program for program in programs if shutil.which(program) is None)
