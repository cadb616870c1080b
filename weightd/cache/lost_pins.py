"""After the record of pins was lost nothing is evicted, until somebody says so or time is up."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.pin_writer import PinWriter, in_time
from weightd.errors import StateUnwritable
from weightd.store import PinChange

ACCEPT_AGAIN_SECONDS: Final = 60.0

log = logging.getLogger(__name__)


class LostPins:
    """The doubt about the pins that are no longer recorded, and its end."""

    def __init__(self, context: Context, evictions: Evictions, writer: PinWriter) -> None:
        self._context = context
        self._evictions = evictions
        self._writer = writer
        self._later: asyncio.Task[None] | None = None

    def accept_at(self, moment: float) -> None:
        """Accept the loss then, unless somebody did before."""
        left = moment - self._context.clock.now()
        self._later = self._context.tasks.spawn(self._accept_later(left), "accept later")

    async def accept(self) -> None:
        """Evict again.  Without a loss it does nothing.  Raises StateUnwritable."""
        # Apart from the caller, whose cancellation would end the write with it.
        accepting = self._context.tasks.spawn(self._accept(), "accept loss")
        await in_time(asyncio.shield(accepting), self._context.options.pin_timeout)

    def stop(self) -> None:
        """Wait for no moment any more."""
        if self._later is not None:
            self._later.cancel()

    async def _accept(self) -> None:
        failure = await self._writer.ask(PinChange.accept_loss())
        if failure is not None:
            raise StateUnwritable(failure.error, "accept-loss")
        self.stop()
        gone = self._context.ledger.accept_loss()
        self._context.changed.notify()
        await self._evictions.let_go(gone)
        await self._evictions.let_damaged_go()

    async def _accept_later(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, seconds))
            log.warning("nobody accepted the loss of pins in time; evicting again")
            try:
                return await self.accept()
            except StateUnwritable as error:
                figures = {"reason": error.detail}
                log.warning("the loss of pins is not accepted yet", extra=figures)
                seconds = ACCEPT_AGAIN_SECONDS
