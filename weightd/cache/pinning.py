"""Pins: on stable storage before they are answered.

The ledger is changed first, so that nothing evicts what is being pinned, and
the record is queued in the same step, so that records stand in the database
in the order in which the ledger changed.  When a record cannot be written the
ledger is put back as it was.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.records import PinOutcome, PinView
from weightd.errors import StateUnwritable, WeightdError
from weightd.ledger import Pinning
from weightd.model import Digest, Key, Pin
from weightd.store import PinDatabase

log = logging.getLogger(__name__)


class Pins:
    """Takes, renews and ends pins, and lets leases lapse."""

    def __init__(
        self, context: Context, evictions: Evictions, database: PinDatabase, boot_id: str
    ) -> None:
        self._context = context
        self._evictions = evictions
        self._database = database
        self._boot_id = boot_id

    async def load(self) -> None:
        """Enter the pins of stable storage; a lease gets its full ttl anew.

        A pin of a generation that is not here is of an eviction that its unpin
        had allowed, and is forgotten.
        """
        now = self._context.clock.now()
        for stored in await self._context.workers.disk(self._database.load):
            pin = stored.pin
            if self._context.ledger.generation(pin.generation) is None:
                log.warning("pin of %s on %s: not on disk", pin.holder, pin.generation.key)
                self._forget(pin)
                continue
            until = None if pin.ttl is None else now + pin.ttl
            self._context.ledger.put_pin(
                Pin(pin.holder, pin.generation, pin.since, pin.ttl, until, pin.forever)
            )

    async def pin(
        self, holder: str, key: Key, ttl: float | None, forever: bool, digest: Digest | None
    ) -> PinOutcome:
        """Take or renew a pin.  Raises NotResident, GenerationGone or StateUnwritable."""
        pinning = self._context.ledger.pin(
            holder, key, self._context.clock.now(), ttl=ttl, forever=forever, digest=digest
        )
        record = self._context.record(pinning.generation)
        # A caller that goes away leaves a pin that it was not told of: the safe side.
        await asyncio.shield(self._context.tasks.spawn(self._take(pinning), "pin"))
        self._tell("pinned", pinning.pin, renewed=not pinning.created)
        return PinOutcome(record, pinning.pin, pinning.created)

    async def unpin(self, holder: str, key: Key) -> None:
        """End a holder's pins of a key.  Raises NotPinned or StateUnwritable."""
        pins, doomed = self._context.ledger.unpin(holder, key, self._context.clock.now())
        if doomed:
            self._context.tasks.spawn(self._evictions.let_go(doomed), "let go")
        await asyncio.shield(self._context.tasks.spawn(self._end(pins), "unpin"))
        for pin in pins:
            self._tell("unpinned", pin)

    def views(self) -> list[PinView]:
        """Every pin, by key and holder."""
        views = [
            PinView("pin", pin, self._context.ledger.current(one.id.key) is one, one.bytes)
            for one in self._context.ledger.generations()
            for pin in one.pins.values()
        ]
        return sorted(views, key=lambda view: (view.pin.generation, view.pin.holder))

    def lapse(self) -> float | None:
        """End the leases that are due; answer how many seconds the next one has."""
        now = self._context.clock.now()
        for pin in self._context.ledger.lapsed(now):
            doomed = self._context.ledger.drop_pin(pin, now)
            self._context.counters.expired_pins += 1
            self._forget(pin)
            self._tell("expired", pin)
            if doomed is not None:
                self._context.tasks.spawn(self._evictions.let_go([doomed]), "let go")
            self._context.changed.notify()
        due = self._context.ledger.next_lapse()
        return None if due is None else max(0.0, due - now)

    async def _take(self, pinning: Pinning) -> None:
        try:
            await asyncio.wrap_future(self._database.put(pinning.pin, self._boot_id))
        except WeightdError:
            self._take_back(pinning)
            raise

    def _take_back(self, pinning: Pinning) -> None:
        """Undo a pin that is not on stable storage, unless it was renewed or ended since."""
        ledger, pin = self._context.ledger, pinning.pin
        if pinning.generation.pins.get(pin.holder) is not pin:
            return
        if pinning.previous is not None:
            ledger.put_pin(pinning.previous)
            return
        doomed = ledger.drop_pin(pin, self._context.clock.now())
        if doomed is not None:
            self._context.tasks.spawn(self._evictions.let_go([doomed]), "let go")
        self._context.changed.notify()

    async def _end(self, pins: list[Pin]) -> None:
        records = [self._database.remove(pin.holder, pin.generation) for pin in pins]
        try:
            for record in records:
                await asyncio.wrap_future(record)
        except StateUnwritable:
            for pin in pins:
                generation = self._context.ledger.generation(pin.generation)
                if generation is not None and pin.holder not in generation.pins:
                    self._context.ledger.put_pin(pin)
            raise
        finally:
            self._context.changed.notify()

    def _forget(self, pin: Pin) -> None:
        """Remove a record that nobody waits for; if that fails, the next start does it."""
        record = self._database.remove(pin.holder, pin.generation)

        def ended(record: Future[None]) -> None:
            error = record.exception()
            if error is not None:
                log.warning("the record of the pin of %s stays: %s", pin.holder, error)

        record.add_done_callback(ended)

    def _tell(self, type: str, pin: Pin, **more: object) -> None:
        self._context.events.tell(
            type,
            key=str(pin.generation.key),
            generation=pin.generation.digest,
            holder=pin.holder,
            **more,
        )
