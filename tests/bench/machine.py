"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tests.bench.place import filesystem, free_bytes
from tests.parts import program
from weightd import __version__
from weightd.units import format_bytes

_PACKAGES: Final = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "pydantic")

_PROGRAMS: Final = (
    ("nginx", "-v", slice(2, 3), ""),
    ("curl", "--version", slice(2), ""),
    ("sha256sum", "--version", slice(4), ""),
    ("openssl", "version", slice(2), ""),
    ("tar", "--version", slice(4), ""),
    ("aria2c", "--version", slice(3), ""),
    ("s5cmd", "version", slice(1), "s5cmd "),
)
"""Programs, how they say which they are, which words of that do, and what goes before them."""


def facts(place: Path) -> dict[str, str]:
    """The machine, the filesystem and every version that matters, one line each."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} CPUs, {_memory()} of memory",
        "system": f"{platform.system()} {platform.release()}",
        "filesystem": f"{filesystem(place)}, {format_bytes(free_bytes(place))} free",
        "load": "load before the run " + " ".join(f"{one:.2f}" for one in os.getloadavg()),
        "python": f"{platform.python_version()} ({platform.python_build()[1]})",
        "weightd": f"{__version__}, commit {_commit()}",
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "rivals": ", ".join([f"SQLite {sqlite3.sqlite_version}", *_programs(), _hub_client()]),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> str:
    return format_bytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _commit() -> str:
    return _first_line("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")


def _programs() -> list[str]:
    """Each rival among programs, in its own words, or that it is not here."""
    return [
        f"{named}{' '.join(_first_line(name, option).split()[words])}"
        if program(name)
        else f"no {name}"
        for name, option, words, named in _PROGRAMS
    ]


def _hub_client() -> str:
    try:
        return f"huggingface_hub {version('huggingface_hub')}"
    except PackageNotFoundError:
        return "no huggingface_hub"


def _first_line(*command: str) -> str:
    found = program(command[0])
    if found is None:
        return f"no {command[0]}"
    done = subprocess.run([found, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        return "unknown"
    # nginx says on the one what others say on the other.
    return ((done.stdout or done.stderr).splitlines() or ["unknown"])[0]
