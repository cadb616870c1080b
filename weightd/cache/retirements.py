"""The marks of retirement: which of two copies of a key was acknowledged last, said on the disk.

A retirement that the disk refused to write down is owed to it, and tried again.
"""

from __future__ import annotations

import logging

from weightd.cache.context import Context
from weightd.cache.tasks import completed
from weightd.errors import IoError
from weightd.ledger import Standing
from weightd.model import GenerationId, Key
from weightd.store import NoSpace

log = logging.getLogger(__name__)


class Retirements:
    """Marks retired generations, and knows which are not marked yet."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._owed: set[GenerationId] = set()

    def owed(self, key: Key) -> list[GenerationId]:
        """The generations of ``key`` that are retired, and not on the disk."""
        return [id for id in self._owed if id.key == key]

    async def mark(self, id: GenerationId) -> None:
        """Make a retirement last.  Raises IoError; `mark_again` tries anew then."""
        self._owed.add(id)
        try:
            await self._context.workers.commit(self._context.store.mark_superseded, id)
        except NoSpace as error:
            raise refused_by_disk(error) from error
        self._owed.discard(id)

    async def mark_or_later(self, id: GenerationId) -> None:
        """Make a retirement last, if need be later: nothing else fails for it."""
        try:
            await self.mark(id)
        except IoError as error:
            figures = {"key": str(id.key), "generation": id.digest, "reason": error.detail}
            log.warning("a retirement is not on disk yet", extra=figures)

    def forget(self, id: GenerationId) -> None:
        """It is to be current again: its retirement is owed to the disk no more."""
        self._owed.discard(id)

    async def mark_again(self) -> None:
        """Make those retirements last that the disk refused.  Raises IoError."""
        publishing = self._context.publishing
        for id in list(self._owed):
            generation = self._context.ledger.generation(id)
            if generation is None or generation.standing is not Standing.RETIRED:
                self._owed.discard(id)
            elif id.key not in publishing:
                # The same content could come again meanwhile, and be current and marked.
                publishing.add(id.key)
                try:
                    await completed(self.mark(id))
                finally:
                    publishing.discard(id.key)
                    self._context.changed.notify()


def refused_by_disk(error: NoSpace) -> IoError:
    """A full disk that refused to move or mark something: no bytes were wanted of it."""
    return IoError(call=error.call, error=error.error)
