"""What callers bring themselves, while it is on its way: puts, adoptions, uploads that begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from weightd.ledger import Reservation
from weightd.model import Key

Brought: TypeAlias = Literal["put", "adoption", "upload"]


@dataclass(slots=True, eq=False)
class Bringing:
    """One of them.  ``bytes`` is what it declared, None if nothing; it waits for room at first."""

    kind: Brought
    key: Key
    bytes: int | None
    since: float
    reservation: Reservation | None = None
    received: int = 0
    """Bytes of its body so far, told by the thread that reads it."""

    @property
    def waits(self) -> bool:
        """Whether it may not write yet."""
        return self.reservation is None or self.reservation.granted < self.reservation.bytes

    @property
    def done(self) -> int:
        """Bytes that are here; headers and padding of an archive are not among what it declared."""
        return self.received if self.bytes is None else min(self.received, self.bytes)


class UnderWay:
    """All of them, the oldest first."""

    def __init__(self) -> None:
        self._all: dict[Bringing, None] = {}

    def __iter__(self) -> Iterator[Bringing]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @contextmanager
    def bring(self, kind: Brought, key: Key, size: int | None, now: float) -> Iterator[Bringing]:
        """Have it seen for the block, which fills in its ``reservation``."""
        one = Bringing(kind, key, size, now)
        self._all[one] = None
        try:
            yield one
        finally:
            del self._all[one]
