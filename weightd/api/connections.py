"""All connections of all doors: how many there may be, and that every peer takes its answers."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from weightd.api.routing import Door

LOOKS: Final = 4
"""How many times within the idle timeout it is looked whether peers take what they are sent."""

LINGERING_MAX: Final = 64
"""How many that were turned away may stay until they have read why; they have no place."""


_KEPT_FROM: Final[Mapping[Door, int]] = MappingProxyType({"admin": 0, "replica": 1})
"""How many quarters of the places are not for a door; two of the others', on the network."""


class Connection(Protocol):
    """What `Connections` knows of one: it keeps it in a set, so it is itself and no other."""

    def takes_its_answer(self) -> bool:
        """Whether the peer took something since the last call, or has nothing to take."""
        ...

    def cut(self) -> None:
        """End the connection at once, whatever is unsent."""
        ...


class Connections:
    """The places that all doors share.  Used on the loop's thread only.

    A quarter of them is for the admin socket alone, so that nobody else can
    lock the operator out, and a quarter for the sockets, so that nobody on the
    network can lock the replicas out.  An answer stays in memory until its peer takes it,
    and an orderly close waits for that without end; so a connection whose peer
    takes nothing for ``idle_timeout`` seconds, or up to half as long again, is cut.
    """

    def __init__(self, limit: int, idle_timeout: float) -> None:
        self.limit = limit
        self._interval = idle_timeout / LOOKS
        self._idle: dict[Connection, int] = {}
        self._lingering: set[Connection] = set()
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def enter(self, connection: Connection, door: Door) -> bool:
        """Take a place; False when none is left."""
        quarters = _KEPT_FROM.get(door, 2)
        if len(self._idle) >= self.limit - quarters * (self.limit // 4):
            return False
        self._idle[connection] = 0
        if self._timer is None:
            self._look_later()
        return True

    def linger(self, connection: Connection) -> bool:
        """Let one that was turned away stay a moment; False when too many do."""
        if len(self._lingering) >= LINGERING_MAX:
            return False
        self._lingering.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        """Give the place back."""
        self._idle.pop(connection, None)
        self._lingering.discard(connection)
        if not self._idle and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _look(self) -> None:
        for connection, idle in list(self._idle.items()):
            self._idle[connection] = 0 if connection.takes_its_answer() else idle + 1
            # The responses that stream have the same bound, and say more when it is reached.
            if self._idle[connection] > LOOKS + 1:
                connection.cut()
        self._look_later()
