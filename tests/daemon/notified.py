"""The service manager's end of the notify socket: what the daemon says of itself, as events."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SAID_WITHIN: Final = 60.0


class Manager:
    """Receives ``READY=1`` and ``STOPPING=1``."""

    def __init__(self, channel: socket.socket, path: Path) -> None:
        self._channel = channel
        self.environ = {"NOTIFY_SOCKET": str(path)}

    def hears(self, state: str) -> None:
        """Wait for the daemon's next word, which must be ``state``."""
        assert self._channel.recv(64).decode() == state


@contextmanager
def manager(directory: Path) -> Iterator[Manager]:
    """A notify socket in ``directory``; start the daemon with its ``environ``."""
    path = directory / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(_SAID_WITHIN)
        channel.bind(str(path))
        yield Manager(channel, path)
