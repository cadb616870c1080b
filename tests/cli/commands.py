"""The command as a process of its own, beside a daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import weightd

HERE: Final = Path(weightd.__file__).parents[1]
WITHIN: Final = 90.0


@dataclass(frozen=True)
class Shell:
    """A place to type commands: their daemon's socket, and the rest of the environment."""

    socket: Path | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        told = {} if self.socket is None else {"WEIGHTD_SOCKET": str(self.socket)}
        return kept | {"PYTHONPATH": str(HERE), "LANG": "C.UTF-8"} | told | dict(self.more)

    def argv(self, *given: str | Path) -> list[str]:
        return [sys.executable, "-m", "weightd", *map(str, given)]

    def __call__(self, *given: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.argv(*given),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=WITHIN,
        )

    def out(self, *given: str | Path) -> str:
        """What a command prints that must succeed."""
        ran = self(*given)
        assert ran.returncode == 0, (given, ran.stdout, ran.stderr)
        return ran.stdout

    @contextmanager
    def running(self, *given: str | Path) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until the context is left, at the latest."""
        with subprocess.Popen(
            self.argv(*given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line that it prints, once it does."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, _said(process)
    return line.rstrip("\n")


def _said(process: subprocess.Popen[str]) -> Sequence[str]:
    assert process.stderr is not None
    return process.stderr.readlines()
