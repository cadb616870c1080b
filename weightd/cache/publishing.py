"""From files on the disk to the current generation of a key: one way for every arrival.

Publish, commit, then put the predecessor where it belongs, all before the
arrival is acknowledged; one arrival of a key at a time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from weightd.cache.checks import Checks
from weightd.cache.context import Context, Model
from weightd.cache.evictions import Evictions
from weightd.cache.records import PutOutcome
from weightd.errors import Exists, IoError, Pinned
from weightd.ledger import Generation, Reservation, Standing, Succession, holder_figures
from weightd.model import Blob, FileEntry, GenerationId, Key, Manifest, content_digest
from weightd.store import AlreadyPublished, Ingest, NoSpace, StillThere


@dataclass(frozen=True, slots=True)
class Origination:
    """Where an arrival came from, as its record tells: the reference and what it resolved to.

    ``validators`` as `Manifest.validators`.
    """

    source: str | None = None
    revision: str | None = None
    validators: tuple[tuple[str, str], ...] = ()


UNTOLD = Origination()

log = logging.getLogger(__name__)


class Publications:
    """Makes arrivals current."""

    def __init__(self, context: Context, evictions: Evictions, checks: Checks) -> None:
        self._context = context
        self._evictions = evictions
        self._checks = checks
        self.last_sequence = 0

    async def publish(
        self,
        reservation: Reservation,
        ingest: Ingest,
        files: tuple[FileEntry, ...],
        origination: Origination = UNTOLD,
        *,
        create_only: bool = False,
        guarded: bool = False,
    ) -> PutOutcome:
        """Publish and commit, one arrival of a key at a time.  Must run to its end.

        With ``guarded`` the generation counts as read once more when this
        answers, so that nothing evicts it before its caller has pinned it.
        Raises Exists, Pinned, InUse, NoSpace or IoError.
        """
        key = reservation.key
        async with self._turn(key):
            id = GenerationId(key, content_digest(files))
            known = await self._checks.known(id)
            if create_only:
                self.must_not_exist(key)
            if known is not None and known.standing is Standing.RESIDENT:
                self._guard(known, guarded)
                await self._restate(known, origination)
                return self.same(known)
            if known is not None:
                succession = await self._restore(reservation, ingest, known, origination)
            else:
                succession = await self._commit(reservation, ingest, id, files, origination)
            self._guard(succession.generation, guarded)
            # Nothing keeps it from being evicted again before its predecessor is where it belongs.
            record = self._context.record(succession.generation)
            await self._follow(succession)
        return PutOutcome(record, created=True)

    async def confirm(self, generation: Generation, origination: Origination) -> None:
        """What is here is what has just been asked for: a use of it, under its new origin.

        Must run to its end.
        """
        async with self._turn(generation.id.key):
            if generation.standing is Standing.RESIDENT:
                await self._restate(generation, origination)
        self.same(generation)

    @asynccontextmanager
    async def _turn(self, key: Key) -> AsyncIterator[None]:
        """One publication of a key at a time, and none while a generation of it leaves."""
        while key in self._context.publishing or self._context.ledger.leaving(key):
            await self._context.changed.wait()
        self._context.publishing.add(key)
        try:
            yield
        finally:
            self._context.publishing.discard(key)
            self._context.changed.notify()

    def same(self, generation: Generation) -> PutOutcome:
        """The content is here already, which is a use of it."""
        self._context.ledger.touch(generation.id, self._context.clock.now())
        return PutOutcome(self._context.record(generation), created=False)

    async def _restate(self, generation: Generation, origination: Origination) -> None:
        """Let its record say where the same content came from this time.

        What the disk refuses of that is let be: nothing depends on it.
        """
        model = self._context.models[generation.id]
        manifest = _restated(model.manifest, origination)
        if manifest == model.manifest:
            return
        try:
            await self._context.workers.commit(self._context.store.restate, manifest)
        except (IoError, NoSpace) as error:
            figures = {"key": str(generation.id.key), "reason": str(error)}
            log.warning("a record keeps its old revision", extra=figures)
        else:
            model.manifest = manifest

    def must_not_exist(self, key: Key) -> None:
        """Raises Exists."""
        current = self._context.ledger.current(key)
        if current is not None:
            raise Exists(key=str(key), digest=current.id.digest)

    def _guard(self, generation: Generation, guarded: bool) -> None:
        if guarded:
            self._context.ledger.read(generation.id, 1)

    async def _commit(
        self,
        reservation: Reservation,
        ingest: Ingest,
        id: GenerationId,
        files: tuple[FileEntry, ...],
        origination: Origination,
    ) -> Succession:
        now = self._context.clock.now()
        manifest = Manifest(
            key=id.key,
            digest=id.digest,
            files=files,
            sequence=self._next_sequence(),
            published_at=now,
            source=origination.source,
            revision=origination.revision,
            validators=origination.validators,
        )
        blobs = await self._publish_on_disk(ingest, manifest)
        succession = self._context.ledger.commit(reservation, id.digest, blobs, now)
        self._context.models[id] = Model(manifest, checked_at=now)
        self._context.counters.arrived(id, manifest.bytes, now)
        self._tell_published(succession.generation)
        return succession

    async def _publish_on_disk(self, ingest: Ingest, manifest: Manifest) -> tuple[Blob, ...]:
        try:
            return await self._appear(ingest, manifest)
        except AlreadyPublished:
            await self._evictions.make_way(manifest.id)
            return await self._appear(ingest, manifest)

    async def _appear(self, ingest: Ingest, manifest: Manifest) -> tuple[Blob, ...]:
        publish = self._context.store.publish
        try:
            _, blobs = await self._context.workers.commit(publish, ingest, manifest)
        except StillThere as left:
            self._evictions.add_damaged({left.generation: left.bytes})
            raise left.failure from left
        return blobs

    async def _restore(
        self, reservation: Reservation, ingest: Ingest, known: Generation, origination: Origination
    ) -> Succession:
        """The content of a retired generation came again: it is current once more."""
        if known.damaged:
            raise Pinned(key=str(known.id.key), holders=holder_figures([known]))
        ledger = self._context.ledger
        # Its last pin may go while the mark is taken off; the reader keeps it until it is current.
        ledger.read(known.id, 1)
        try:
            await self._unretire(known, origination)
            # The promise ends with the restoration, so the copy that came has to go before.
            await self._evictions.abort(ingest, reservation)
            succession = ledger.restore(reservation, known.id, self._context.clock.now())
        finally:
            gone = ledger.read(known.id, -1)
            if gone is not None:
                self._context.tasks.spawn(self._evictions.let_go([gone]), "let go")
        self._tell_published(known)
        return succession

    async def _unretire(self, known: Generation, origination: Origination) -> None:
        """Let the disk say that it is current; when it fails, that it is not."""
        model = self._context.models[known.id]
        manifest = _restated(model.manifest, origination)
        manifest = replace(manifest, sequence=self._next_sequence())
        # Nobody else is to mark it meanwhile.
        self._evictions.retirements.forget(known.id)
        try:
            await self._context.workers.commit(self._context.store.restore, manifest)
        except (IoError, NoSpace):
            # It may be unmarked by now, and would come before what is current at the next start.
            await self._evictions.retirements.mark_or_later(known.id)
            raise
        model.manifest = manifest

    def _next_sequence(self) -> int:
        self.last_sequence += 1
        return self.last_sequence

    async def _follow(self, succession: Succession) -> None:
        """Put the predecessor where it belongs before the arrival is acknowledged.

        What the disk refuses here is done later: the arrival has happened.
        """
        if succession.replaced is not None:
            self._tell("replaced", succession.replaced.generation)
            await self._evictions.let_go([succession.replaced])
            if self._context.ledger.generation(succession.replaced.id) is not None:
                # Used, or refused by the disk: it is retired now, and `Upkeep` asks again.
                self._tell("retired", succession.replaced.generation)
                await self._evictions.retirements.mark_or_later(succession.replaced.id)
        if succession.left:
            self._context.tasks.spawn(self._evictions.let_go(succession.left), "let go")
        if succession.retired is not None:
            self._tell("retired", succession.retired)
            await self._evictions.retirements.mark_or_later(succession.retired.id)

    def _tell_published(self, generation: Generation) -> None:
        self._context.refusals.forget(generation.id.key)
        self._tell("published", generation)

    def _tell(self, type: str, generation: Generation) -> None:
        self._context.events.tell(
            type,
            key=str(generation.id.key),
            generation=generation.id.digest,
            bytes=generation.bytes,
        )


def _restated(manifest: Manifest, origination: Origination) -> Manifest:
    """As it came this time; one who brings it by hand does not know where it is from."""
    if origination == UNTOLD:
        return manifest
    return replace(
        manifest,
        source=origination.source,
        revision=origination.revision,
        validators=origination.validators,
    )
