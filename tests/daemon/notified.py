"""The service manager's end of the notify socket: what the daemon says of itself, as events."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SAID_WITHIN: Final = 60.0
_BYTES_MAX: Final = 4096

_BETWEEN: Final = frozenset({"STATUS", "WATCHDOG", "EXTEND_TIMEOUT_USEC"})
"""What may be said between two words of the daemon's life."""


class Manager:
    """Receives ``READY=1`` and ``STOPPING=1``, each with the fields that come with it."""

    def __init__(self, channel: socket.socket, path: Path) -> None:
        self._channel = channel
        self.environ = {"NOTIFY_SOCKET": str(path)}

    def hears(self, state: str) -> dict[str, str]:
        """Wait for the daemon's next word, which must be ``state``; all that was said with it."""
        while True:
            said = self.next()
            if state in {f"{name}={value}" for name, value in said.items()}:
                return said
            assert said.keys() <= _BETWEEN, said

    def next(self) -> dict[str, str]:
        """Wait for the next message, whatever it is."""
        lines = self._channel.recv(_BYTES_MAX).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def quiet(self, field: str, seconds: float) -> bool:
        """Whether no message with ``field`` comes for so long."""
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self._channel.settimeout(left)
                if field in self.next():
                    return False
        except TimeoutError:
            pass
        finally:
            self._channel.settimeout(_SAID_WITHIN)
        return True


@contextmanager
def manager(directory: Path) -> Iterator[Manager]:
    """A notify socket in ``directory``; start the daemon with its ``environ``."""
    path = directory / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(_SAID_WITHIN)
        channel.bind(str(path))
        yield Manager(channel, path)
