"""Lookups: the current generation of a key, its record, the bytes of its files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weightd.cache.checks import Checks
from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.records import Contents, Record
from weightd.cache.tasks import ended
from weightd.errors import NotResident, UnknownFile
from weightd.ledger import Generation
from weightd.model import FileEntry, GenerationId, Key


class Lookups:
    """Answers where a model is, after a look at its files that is not old."""

    def __init__(self, context: Context, evictions: Evictions, checks: Checks) -> None:
        self._context = context
        self._evictions = evictions
        self._checks = checks

    async def get(self, key: Key) -> Record:
        """Look a model up: a hit or a miss, and a use.  Raises NotResident: a miss."""
        wished = self._context.clock.now()
        try:
            generation = await self.present(key)
        except NotResident:
            self._context.counters.miss()
            raise
        now = self._context.clock.now()
        self._context.ledger.use(key, now)
        record = self._context.record(generation)
        self._context.counters.hit(record.manifest.bytes, now - wished)
        return record

    async def peek(self, key: Key) -> Record:
        """The same without counting or using anything.  Raises NotResident."""
        return self._context.record(await self.present(key))

    def page(self, after: Key | None, limit: int) -> tuple[list[Record], Key | None]:
        """Up to ``limit`` resident models whose keys follow ``after``, and where to go on."""
        ledger = self._context.ledger
        page = ledger.keys_after(after, limit + 1)
        current = (ledger.current(key) for key in page[:limit])
        records = [self._context.record(one) for one in current if one is not None]
        return records, page[limit - 1] if len(page) > limit else None

    def resident(self) -> list[tuple[Key, int]]:
        """Every resident model and its bytes as a user counts them, the longest unused first."""
        models = self._context.models
        every = self._context.ledger.idle_first()
        return [(one.id.key, models[one.id].manifest.bytes) for one in every]

    @asynccontextmanager
    async def content(self, key: Key, file: str) -> AsyncIterator[Contents]:
        """Open one file of a model, which is not evicted while it is read.

        No lookup is counted.  Raises NotResident or UnknownFile.
        """
        generation = await self.present(key)
        record = self._context.record(generation)
        entry = next((entry for entry in record.manifest.files if entry.path == file), None)
        if entry is None:
            raise UnknownFile(key=str(key), file=file)
        self._context.ledger.read(generation.id, 1)
        try:
            descriptor = await self._open(generation.id, entry)
            try:
                yield Contents(record, entry, descriptor)
            finally:
                os.close(descriptor)
        finally:
            doomed = self._context.ledger.read(generation.id, -1)
            if doomed is not None:
                self._context.tasks.spawn(self._evictions.let_go([doomed]), "let go")
            self._context.changed.notify()

    async def _open(self, id: GenerationId, entry: FileEntry) -> int:
        opening = self._context.workers.disk(self._context.store.open_file, id, entry.path)
        cancelled = await ended(opening)
        try:
            descriptor = opening.result()
        except FileNotFoundError:
            self._checks.doubt(id)
            raise NotResident(key=str(id.key)) from None
        if cancelled is not None:
            os.close(descriptor)
            raise cancelled
        return descriptor

    def doubt(self, generation: Generation) -> None:
        """A file of it was not found, so that it is to be looked at before it is answered again."""
        self._checks.doubt(generation.id)

    async def present(self, key: Key) -> Generation:
        """The current generation, its files seen not long ago.  Raises NotResident."""
        generation = await self._checks.current(key)
        if generation is None:
            raise NotResident(key=str(key))
        return generation
