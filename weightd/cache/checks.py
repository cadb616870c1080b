"""Whether a model's files are still what was published.

What vanished or changed becomes a miss, is journalled and counted, and hides
nothing else.  A damaged model that somebody pinned stays on disk until the
pins go, but is answered to nobody new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from weightd.cache.context import NEVER, Context
from weightd.cache.evictions import Evictions
from weightd.cache.retirements import refused_by_disk
from weightd.cache.tasks import completed
from weightd.errors import IoError
from weightd.ledger import Doomed, Generation
from weightd.model import GenerationId, Key
from weightd.store import Damage, NoSpace

log = logging.getLogger(__name__)


class Checks:
    """Compares models with their manifests: on lookup, and all of them now and then."""

    def __init__(self, context: Context, evictions: Evictions) -> None:
        self._context = context
        self._evictions = evictions
        self._checking: dict[Generation, asyncio.Task[None]] = {}

    async def current(self, key: Key) -> Generation | None:
        """The current generation of ``key``, its files seen not long ago.  Raises IoError."""
        await self._context.settled(key)
        checked = None
        while (generation := self._context.ledger.current(key)) is not None:
            # However slow the disk: one that a check found whole is answered after that check.
            if generation is checked or self.fresh(generation):
                break
            checked = generation
            await self._check_once(generation)
            await self._context.settled(key)
        return generation

    async def known(self, id: GenerationId) -> Generation | None:
        """The generation ``id``, its files seen just now.  Raises IoError."""
        generation = self._context.ledger.generation(id)
        if generation is not None and not generation.damaged:
            await self.check(generation)
            await self._context.settled(id.key)
        return self._context.ledger.generation(id)

    def doubt(self, id: GenerationId) -> None:
        """One of its files was not there: look at once when it is wanted again."""
        model = self._context.models.get(id)
        if model is not None:
            model.checked_at = NEVER

    def fresh(self, generation: Generation) -> bool:
        """Whether the last check is recent enough for a lookup to be answered at once."""
        age = self._context.clock.now() - self._context.models[generation.id].checked_at
        return age <= self._context.options.check_age

    async def _check_once(self, generation: Generation) -> None:
        """Check, or share the check that another lookup has under way."""
        checking = self._checking.get(generation)
        if checking is None:
            checking = self._context.tasks.spawn(self.check(generation), "check files")
            self._checking[generation] = checking
            checking.add_done_callback(lambda _: self._checking.pop(generation))
        # Whoever stops waiting leaves it to the others.
        await asyncio.shield(checking)

    async def check(self, generation: Generation) -> None:
        """Look at the files; a damaged model is in the books no more afterwards.

        Raises IoError when the disk does not answer, which says nothing of the model.
        """
        model = self._context.models[generation.id]
        asked = self._context.clock.now()
        try:
            found = await self._context.workers.disk(self._context.store.check, model.manifest)
        except NoSpace as error:
            raise refused_by_disk(error) from error
        if self._context.ledger.generation(generation.id) is not generation or generation.damaged:
            return
        if isinstance(found, Damage):
            # Before any await: another lookup may have found the same.
            doomed = self._withdraw(generation, found.reason)
            if doomed is not None:
                await self._evictions.let_go([doomed])
            return
        # What changed since it was asked was not seen.
        model.checked_at = asked
        if found != generation.blobs:
            self._context.ledger.rebind(generation.id, found)

    async def check_all(self) -> None:
        """Check every model once, one after the other."""
        for generation in list(self._context.ledger.generations()):
            if generation.damaged or self._context.ledger.generation(generation.id) is None:
                continue
            try:
                await self.check(generation)
            except IoError as error:
                figures = {"key": str(generation.id.key), "reason": error.detail}
                log.warning("not checked", extra=figures)
            # A pass over ten thousand models lets every request go before it.
            await asyncio.sleep(0)

    async def set_aside(self, damaged: Sequence[tuple[Generation, str]]) -> None:
        """Answer models no more, each for a reason that no later look would see by itself.

        What nothing keeps goes, and what stays is marked, so that no start answers it again.
        """
        withdrawn = [(one.id, reason, self._withdraw(one, reason)) for one, reason in damaged]
        await completed(self._set_aside(withdrawn))

    async def _set_aside(
        self, withdrawn: Sequence[tuple[GenerationId, str, Doomed | None]]
    ) -> None:
        context = self._context
        for id, reason, _ in withdrawn:
            # Also of one that goes: its eviction may be refused, or end with the daemon.
            try:
                await context.workers.commit(context.store.mark_damaged, id, reason)
            except (IoError, NoSpace) as error:
                figures = {"key": str(id.key), "reason": str(error)}
                log.warning("damaged, and the next start may answer it", extra=figures)
        await self._evictions.let_go([doomed for _, _, doomed in withdrawn if doomed is not None])

    def _withdraw(self, generation: Generation, reason: str) -> Doomed | None:
        self._context.counters.damaged_models += 1
        self._context.events.tell(
            "damaged",
            key=str(generation.id.key),
            generation=generation.id.digest,
            bytes=generation.bytes,
            reason=reason,
        )
        return self._context.ledger.withdraw(generation.id)
