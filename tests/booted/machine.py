"""A container whose first process is systemd, and what a test does in it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.polling import until
from tests.system.daemon import Client

UP_WITHIN: Final = 120.0
_DOWN_WITHIN: Final = 90.0
_DONE_WITHIN: Final = 180.0
_PATH: Final = "PATH=/usr/local/bin:/usr/bin:/usr/sbin"

DROP_IN: Final = "run/systemd/system/{unit}.d/test.conf"


@dataclass(frozen=True, slots=True)
class Machine:
    """A booted container; ``init`` is its first process as this machine numbers it."""

    init: int

    @property
    def files(self) -> Path:
        """Its filesystem, as it sees it."""
        return Path(f"/proc/{self.init}/root")

    def client(self, name: str = "weightd") -> Client:
        """Of the daemon whose runtime directory has that name."""
        return Client(self.files / "run" / name / "weightd.sock")

    def enters(self, *command: str) -> list[str]:
        """The command line that runs a command in there."""
        return ["nsenter", "-t", str(self.init), "-a", "env", "-i", _PATH, *command]

    def run(self, *command: str, code: int | None = 0) -> str:
        """Run a command in there; what it said.  ``code`` is what it has to end with."""
        done = subprocess.run(
            self.enters(*command), capture_output=True, text=True, timeout=_DONE_WITHIN, check=False
        )
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, (command, done.returncode, said)
        return said

    def told(self, name: str, unit: str = "weightd.service") -> str:
        """What systemd says of a unit's property."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).strip()

    def main_process(self, unit: str = "weightd.service") -> int:
        """The service's process, as this machine numbers it."""
        inside = self.told("MainPID", unit)
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
            except (FileNotFoundError, ProcessLookupError):
                continue
            if lines["NSpid"].split()[1:] == [inside] and self._is_mine(status.parent):
                return int(status.parent.name)
        raise AssertionError(f"no process is {inside} in there")

    def journal(self, *options: str, unit: str = "weightd.service") -> str:
        return self.run("journalctl", "--no-pager", "-u", unit, *options)

    def drop_in(self, text: str, unit: str = "weightd.service") -> None:
        """Have what ``systemctl edit`` would write, for as long as the container lives."""
        place = self.files / DROP_IN.format(unit=unit)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        self.run("systemctl", "daemon-reload")

    def no_drop_in(self, unit: str = "weightd.service") -> None:
        (self.files / DROP_IN.format(unit=unit)).unlink(missing_ok=True)
        self.run("systemctl", "daemon-reload")

    def _is_mine(self, process: Path) -> bool:
        return os.readlink(process / "ns/pid") == os.readlink(f"/proc/{self.init}/ns/pid")


@contextmanager
def booted(system: Path, log: Path) -> Iterator[Machine]:
    """Boot the system at ``system``; what it prints goes to ``log``."""
    command = ["systemd-nspawn", "-q", "-D", str(system), "--register=no", "--keep-unit"]
    command += ["--private-network", "-b", "--console=pipe"]
    with log.open("wb") as sink:
        container = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    try:
        machine = Machine(_first_process(container))
        said = ""
        end = time.monotonic() + UP_WITHIN
        while said not in ("running", "degraded"):
            assert time.monotonic() < end, (said, log.read_text(errors="replace"))
            time.sleep(0.2)  # nothing announces it to who is outside
            said = machine.run("systemctl", "is-system-running", code=None).strip()
        yield machine
    finally:
        container.send_signal(signal.SIGTERM)
        try:
            container.wait(_DOWN_WITHIN)
        except subprocess.TimeoutExpired:
            container.kill()
            container.wait(_DOWN_WITHIN)


def _first_process(container: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    found: list[str] = []

    def there() -> bool:
        assert container.poll() is None, "the container did not start"
        found[:] = children.read_text().split()
        return bool(found) and Path(f"/proc/{found[0]}/comm").read_text().strip() == "systemd"

    until(there)
    return int(found[0])
