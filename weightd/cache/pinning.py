"""Pins: on stable storage before they are answered.

The ledger is changed first, so that nothing evicts what is being pinned, and
the record is queued in the same step, so that records stand in the database
in the order in which the ledger changed.  When a record cannot be written the
ledger is put back to what is on stable storage; until it is known whether an
unpin can be, nothing evicts what was pinned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.keepers import pins_of
from weightd.cache.pin_writer import PinWriter, Told, in_time
from weightd.cache.records import PinOutcome, PinView
from weightd.errors import ADMIN_SOCKET, Forbidden, StateUnwritable, TooMany
from weightd.ledger import Pinning
from weightd.model import Digest, GenerationId, Key, Pin
from weightd.store import Damaged, PinChange, StoredPin

DIRECTORY_DIGITS: Final = 16
"""How many digits of a generation's digest the name of its directory tells."""

LAPSED_AT_ONCE: Final = 16
"""Leases ended before requests get their turn, however many are due: no arrival is decided
until what they kept has left."""

log = logging.getLogger(__name__)


class Pins:
    """Takes, renews and ends pins, and lets leases lapse."""

    def __init__(
        self, context: Context, evictions: Evictions, writer: PinWriter, boot_id: str
    ) -> None:
        self._context = context
        self._evictions = evictions
        self._writer = writer
        self._boot_id = boot_id
        self._stored: dict[tuple[str, GenerationId], Pin] = {}
        """What stands on stable storage, as far as it was told."""
        self._lingering: dict[tuple[str, GenerationId], Pin] = {}
        """Pins that ended, and whose records the disk would not let go."""

    def load(self, stored_pins: Iterable[StoredPin], damaged: Iterable[Damaged]) -> None:
        """Enter the pins of stable storage; a lease gets its full ttl anew.

        A pin from before a reboot lapses after a grace, unless it is one forever.

        A pin of a generation that is not here is of an eviction that its unpin
        had allowed, and is forgotten; one of a damaged directory keeps it.
        """
        now = self._context.clock.now()
        unreadable = {one.generation for one in damaged}
        for stored in stored_pins:
            pin = stored.pin
            digest = pin.generation.digest[:DIRECTORY_DIGITS]
            broken = GenerationId(pin.generation.key, digest)
            if broken in unreadable:
                self._evictions.kept.add(broken)
                continue
            if self._context.ledger.generation(pin.generation) is None:
                figures = {"key": str(pin.generation.key), "holder": pin.holder}
                log.warning("a pin is forgotten, since its model is not on disk", extra=figures)
                self._forget(pin)
                continue
            until = None if pin.ttl is None else now + pin.ttl
            if pin.ttl is None and not pin.forever and stored.boot_id != self._boot_id:
                # Its holder died with the node, unless it comes back and renews.
                until = now + self._context.options.orphan_grace
            loaded = replace(pin, until=until)
            self._context.ledger.put_pin(loaded)
            self._stored[pin.holder, pin.generation] = loaded

    async def pin(
        self,
        holder: str,
        key: Key,
        ttl: float | None,
        forever: bool,
        digest: Digest | None,
        uid: int | None,
    ) -> PinOutcome:
        """Take or renew a pin, for a ``uid`` only what is its own and so many.

        Raises NotResident, GenerationGone, Forbidden, TooMany or StateUnwritable.
        """
        ledger, now = self._context.ledger, self._context.clock.now()
        if uid is not None:
            self._must_own(holder, key, uid)
            self._must_be_few(holder, key, uid)
        pinning = ledger.pin(holder, key, now, ttl=ttl, forever=forever, digest=digest, uid=uid)
        record = self._context.record(pinning.generation)
        if pinning.pin.until is not None:
            # The next lease to lapse may be this one.
            self._context.changed.notify()
        if self._stands(pinning):
            self._taken(pinning)
        else:
            change = PinChange.put(pinning.pin, self._boot_id)
            kept = self._writer.ask(change, partial(self._settle, pinning))
            failure = await in_time(kept, self._context.options.pin_timeout)
            if failure is not None:
                raise failure
        return PinOutcome(record, pinning.pin, pinning.created)

    def _stands(self, pinning: Pinning) -> bool:
        """Whether a start would make the same of what is on stable storage already.

        Of a lease it goes by the length alone, which it gives anew.  And nothing
        may be on its way there that says otherwise: the pin renewed is the one
        that was told to be there, not one like it.
        """
        pin, renewed = pinning.pin, pinning.previous
        if renewed is None or self._stored.get((pin.holder, pin.generation)) is not renewed:
            return False
        return replace(renewed, until=pin.until) == pin and (
            pin.ttl is not None or renewed.until is None
        )

    def _must_own(self, holder: str, key: Key, uid: int) -> None:
        if any(pin.uid != uid for pin in self._context.ledger.held(holder, key)):
            raise Forbidden(
                f"The pin of {holder} on {key} was not taken by uid {uid}", ADMIN_SOCKET
            )

    def _must_be_few(self, holder: str, key: Key, uid: int) -> None:
        ledger, most = self._context.ledger, self._context.options.pins_per_uid
        if ledger.owned(uid) >= most and not ledger.held(holder, key):
            raise TooMany(what=f"pins of uid {uid}", limit=most)

    async def unpin(self, holder: str, key: Key, uid: int | None) -> None:
        """End a holder's pins of a key, for a ``uid`` only its own.

        Raises NotPinned, Forbidden or StateUnwritable.
        """
        if uid is not None:
            self._must_own(holder, key, uid)
        ledger = self._context.ledger
        # If its record cannot be removed the pin stands again, so what it kept stays until then.
        for pin in ledger.held(holder, key):
            ledger.read(pin.generation, 1)
        pins, _ = ledger.unpin(holder, key, self._context.clock.now())
        self._context.changed.notify()
        leaving: list[asyncio.Task[Any]] = []
        # They go on, whoever stops waiting; by the answer what was retired is out of reach.
        ends = [self._remove(pin, partial(self._ended, pin, leaving)) for pin in pins]
        timeout = self._context.options.pin_timeout
        for failure in await in_time(asyncio.gather(*ends), timeout):
            if failure is not None:
                raise StateUnwritable(failure.error, "unpin")
        if leaving:
            await asyncio.wait(leaving, timeout=timeout)

    def _remove(self, pin: Pin, told: Told) -> asyncio.Future[StateUnwritable | None]:
        return self._writer.ask(PinChange.remove(pin.holder, pin.generation), told)

    def views(self) -> list[PinView]:
        """Every pin."""
        ledger = self._context.ledger
        return [
            view
            for one in ledger.generations()
            for view in pins_of(one, current=ledger.current(one.id.key) is one)
        ]

    async def lapse(self) -> float | None:
        """End leases that are due, so many at a time; answer how many seconds the next one has.

        What only they kept has left its place then, or stays.
        """
        now = self._context.clock.now()
        doomed = []
        for pin in self._context.ledger.lapsed(now, LAPSED_AT_ONCE):
            doomed.append(self._context.ledger.drop_pin(pin, now))
            self._context.counters.expired_pins += 1
            self._forget(pin)
            self._tell("expired", pin)
            self._context.changed.notify()
        leaving = [one for one in doomed if one is not None]
        if leaving:
            await self._evictions.let_go(leaving)
            await self._context.others_decide()
        # No await from here on to the caller's wait, or a change in between would go unseen.
        due = self._context.ledger.next_lapse()
        return None if due is None else max(0.0, due - self._context.clock.now())

    def _settle(self, pinning: Pinning, failure: StateUnwritable | None) -> None:
        """It is known whether a pin stands on stable storage."""
        if failure is not None:
            self._stand_as_stored(pinning.pin.holder, pinning.generation.id, pinning.pin)
        else:
            self._taken(pinning)

    def _taken(self, pinning: Pinning) -> None:
        self._stored[pinning.pin.holder, pinning.generation.id] = pinning.pin
        self._tell("pinned", pinning.pin, renewed=not pinning.created)

    def _ended(
        self, pin: Pin, leaving: list[asyncio.Task[Any]], failure: StateUnwritable | None
    ) -> None:
        """It is known whether a pin's record is gone: let go what it kept, or have it stand."""
        if failure is not None:
            self._stand_as_stored(pin.holder, pin.generation, None)
        else:
            self._stored.pop((pin.holder, pin.generation), None)
            self._tell("unpinned", pin)
        doomed = self._context.ledger.read(pin.generation, -1)
        self._context.changed.notify()
        if doomed is not None:
            work = self._evictions.let_go([doomed])
            leaving.append(self._context.tasks.spawn(work, "let go"))

    def _stand_as_stored(self, holder: str, id: GenerationId, wanted: Pin | None) -> None:
        """Undo a change to ``wanted`` that is not on stable storage, unless another followed it."""
        ledger = self._context.ledger
        generation, stored = ledger.generation(id), self._stored.get((holder, id))
        if generation is None or generation.pins.get(holder) is not wanted:
            return
        if stored is not None:
            ledger.put_pin(stored)
        elif wanted is not None:
            doomed = ledger.drop_pin(wanted, self._context.clock.now())
            if doomed is not None:
                self._context.tasks.spawn(self._evictions.let_go([doomed]), "let go")
        self._context.changed.notify()

    def _forget(self, pin: Pin) -> None:
        """Remove a record that nobody waits for; if that fails, `forget_again` does it."""
        self._remove(pin, partial(self._forgotten, pin))
        self._stored.pop((pin.holder, pin.generation), None)

    def _forgotten(self, pin: Pin, failure: StateUnwritable | None) -> None:
        if failure is not None:
            figures = {
                "key": str(pin.generation.key),
                "holder": pin.holder,
                "reason": failure.detail,
            }
            log.warning("the record of a pin that ended stays for now", extra=figures)
            self._lingering[pin.holder, pin.generation] = pin

    async def forget_again(self) -> None:
        """Remove the records that lingered, or the next start would take them for pins."""
        for name, pin in list(self._lingering.items()):
            generation = self._context.ledger.generation(pin.generation)
            if generation is not None and pin.holder in generation.pins:
                # Pinned anew: once that is written there is no other record, but it may fail.
                if name in self._stored:
                    del self._lingering[name]
                continue
            del self._lingering[name]
            self._forget(pin)

    def _tell(self, type: str, pin: Pin, **more: object) -> None:
        self._context.events.tell(
            type,
            key=str(pin.generation.key),
            generation=pin.generation.digest,
            holder=pin.holder,
            **more,
        )
