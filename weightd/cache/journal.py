"""The journal of what was evicted: numbered, told, and kept until it is written down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from weightd.cache.context import Context
from weightd.model import Eviction, EvictionReason, GenerationId, Key

PENDING_MAX: Final = 10_000
"""Entries that wait to be written down; of more the oldest are lost."""

RECENT: Final = 20


class Journal:
    """``last_sequence`` is the number of its last entry, 0 without one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pending: list[Eviction] = []
        self._recent: deque[Eviction] = deque(maxlen=RECENT)
        self.last_sequence = 0

    def begin(self, last_sequence: int, recent: Iterable[Eviction]) -> None:
        """Go on behind what earlier runs wrote, of which ``recent`` is the end."""
        self.last_sequence = last_sequence
        self._recent.extend(recent)

    def add(
        self,
        id: GenerationId,
        size: int,
        reason: EvictionReason,
        *,
        idle: float = 0.0,
        beneficiary: Key | None = None,
    ) -> None:
        """A generation of ``size`` bytes went, unused for ``idle`` seconds; count and tell it."""
        now = self._context.clock.now()
        self.last_sequence += 1
        entry = Eviction(
            sequence=self.last_sequence,
            key=id.key,
            digest=id.digest,
            bytes=size,
            reason=reason,
            at=now,
            idle=idle,
            beneficiary=beneficiary,
        )
        self._context.counters.evicted(id, size, reason, now)
        self._pending.append(entry)
        self._recent.append(entry)
        del self._pending[:-PENDING_MAX]
        self._context.events.tell(
            "evicted",
            key=str(entry.key),
            generation=entry.digest,
            bytes=entry.bytes,
            reason=reason,
            beneficiary=None if beneficiary is None else str(beneficiary),
            idle_seconds=round(idle, 3),
        )

    def newest_first(self) -> list[Eviction]:
        """The last `RECENT` entries, those of earlier runs included."""
        return list(reversed(self._recent))

    def pending(self, after: int = 0) -> list[Eviction]:
        """What is not written down yet and follows sequence ``after``, oldest first."""
        return [entry for entry in self._pending if entry.sequence > after]

    def written(self, last: int) -> None:
        """All up to sequence ``last`` is written down."""
        self._pending[:] = self.pending(last)
