"""Another user of the filesystem, and one who looks at it all the time."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.filesystems.disks import MB, available

LOOK_SECONDS: Final = 0.002


class Neighbour:
    """Software that keeps files of its own beside the root."""

    def __init__(self, point: Path) -> None:
        self._file = point / "neighbour"

    def write(self, size: int) -> None:
        """Take ``size`` bytes more of the disk, for good."""
        with self._file.open("ab") as file:
            for _ in range(size // MB):
                file.write(os.urandom(MB))
            file.flush()
            os.fsync(file.fileno())

    def fill(self) -> None:
        """Take all there is."""
        with self._file.open("ab", buffering=0) as file:
            for step in (MB, 4096):
                try:
                    while True:
                        file.write(os.urandom(step))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def leave(self) -> None:
        """Give it all back."""
        self._file.unlink()


class Least:
    """The least that was free while somebody looked."""

    def __init__(self, point: Path) -> None:
        self._point = point
        self._stopped = threading.Event()
        self.looks = 0
        self.bytes = available(point)

    def look(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self.bytes = min(self.bytes, available(self._point))
            self.looks += 1

    def stop(self) -> None:
        self._stopped.set()


@contextmanager
def watched(point: Path) -> Iterator[Least]:
    """Look at what is free, every few milliseconds, until it is left."""
    least = Least(point)
    looking = threading.Thread(target=least.look)
    looking.start()
    try:
        yield least
    finally:
        least.stop()
        looking.join()
