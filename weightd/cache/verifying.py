"""Models read to the last byte, one after the other, for somebody who waits for what is found.

A reading keeps nothing from anybody: the model may be evicted, deleted or
replaced meanwhile, which ends the reading and is its outcome.  It ends with
whoever follows it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from weightd.cache.checks import Checks
from weightd.cache.context import Context
from weightd.cache.following import Following, rate_and_eta, while_it_gives
from weightd.cache.records import VerifyView
from weightd.errors import NotResident, TooMany, WeightdError
from weightd.ledger import Generation
from weightd.model import Key, Manifest
from weightd.store import Flaw, Reading, Verified

Outcome: TypeAlias = Literal["whole", "damaged", "gone", "failed", "draining"]

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Course:
    """One verification: what is read, how far it is, and what came of it."""

    generation: Generation
    manifest: Manifest
    reading: Reading = field(default_factory=Reading)
    began_at: float | None = None
    flaws: tuple[Flaw, ...] = ()
    shared: tuple[Key, ...] = ()
    kept: bool = False
    error: WeightdError | None = None

    def view(self, now: float, ended: bool) -> VerifyView:
        done, total = self.reading.done, self.manifest.bytes
        rate, eta = rate_and_eta(self.began_at, now, done, total)
        return VerifyView(
            generation=self.generation.id,
            state="ended" if ended else "queued" if self.began_at is None else "reading",
            bytes_done=done,
            bytes_total=total,
            file=self.reading.file,
            rate=rate,
            eta=eta,
            flaws=self.flaws,
            shared=self.shared,
            kept=self.kept,
            error=self.error,
        )


class Verifications:
    """Every verification under way or waiting for its turn."""

    def __init__(self, context: Context, checks: Checks) -> None:
        self._context = context
        self._checks = checks
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[str]] = set()
        self._beginning = 0

    async def begin(self, key: Key) -> Following:
        """Read the current generation of ``key``, for as long as what is answered is followed.

        That is ``progress`` now and then, None while all is quiet, and ``end`` with the
        outcome.  What is damaged is set aside.  No lookup is counted.
        Raises NotResident, TooMany and Draining, and IoError while an eviction hangs.
        """
        self._context.must_take_new()
        # Counted before anything is waited for: many may ask at once.
        accepted = len(self._running) + self._beginning
        if accepted > self._context.options.verifications:
            raise TooMany("verifications under way and waiting", accepted)
        self._beginning += 1
        try:
            await self._context.settled(key)
            course = _Course(*self._current(key))
        finally:
            self._beginning -= 1
        task = self._context.tasks.spawn(self._outcome(course), f"verify {key}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        now = self._context.clock.now
        return Following(
            self._context, task, "verification", lambda ended: course.view(now(), ended)
        )

    def stop(self) -> None:
        """End all of them; each says that it is for the daemon's end."""
        for task in self._running:
            task.cancel()

    def _current(self, key: Key) -> tuple[Generation, Manifest]:
        generation = self._context.ledger.current(key)
        if generation is None:
            raise NotResident(key=str(key))
        return generation, self._context.models[generation.id].manifest

    async def _outcome(self, course: _Course) -> str:
        try:
            async with self._turn:
                return await self._verify(course)
        except WeightdError as error:
            figures = {"key": str(course.generation.id.key), "reason": error.detail}
            log.info("not verified", extra=figures)
            course.error = error
            return "failed"

    async def _verify(self, course: _Course) -> Outcome:
        key = course.generation.id.key
        await self._context.settled(key)
        # While it waited for its turn another one may have come.
        course.generation, course.manifest = self._current(key)
        course.began_at = self._context.clock.now()
        verified = await self._read(course)
        # A victim that was out of its place when it was looked for may be back.
        await self._context.settled(key)
        course.flaws = verified.flaws
        generation = course.generation
        if not generation.damaged:
            if self._context.ledger.generation(generation.id) is not generation:
                return "gone"
            if verified.vanished:
                course.flaws += (Flaw(None, "missing", "its directory is missing"),)
            if not course.flaws:
                self._context.models[generation.id].checked_at = course.began_at
                return "whole"
            await self._set_aside(course)
        elif not course.flaws:
            course.flaws = (Flaw(None, "changed", "a look at its files found it damaged"),)
        course.kept = self._context.ledger.generation(generation.id) is generation
        return "damaged"

    async def _read(self, course: _Course) -> Verified:
        """Read it in a thread, which ends soon after this does.  Raises IoError."""
        reading = course.reading
        work = self._context.workers.verify(self._context.store.verify, course.manifest, reading)
        # Nobody may be there any more to see it fail.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await while_it_gives(
                work,
                lambda: (reading.done, reading.file),
                self._context.options.read_timeout,
                lambda: f"read of {reading.file or 'the manifest'} of {course.manifest.key}",
            )
            verified = work.result()
        finally:
            reading.stopping = True
        assert verified is not None, "nobody else stops it"
        return verified

    async def _set_aside(self, course: _Course) -> None:
        """Answer it no more, nor any other model that has a file of it that is damaged."""
        damaged = [(course.generation, "; ".join(flaw.reason for flaw in course.flaws[:3]))]
        lost = {(flaw.inode, flaw.expected): flaw for flaw in course.flaws if flaw.inode}
        for other in self._context.ledger.generations():
            if other is course.generation or other.damaged:
                continue
            flaws = (lost.get((blob.inode, blob.sha256)) for blob in other.blobs)
            flaw = next((one for one in flaws if one is not None), None)
            if flaw is not None:
                reason = f"it shares a file with {course.generation.id.key}: {flaw.reason}"
                damaged.append((other, reason))
        course.shared = _keys([other for other, _ in damaged[1:]])
        await self._checks.set_aside(damaged)


def _keys(generations: Sequence[Generation]) -> tuple[Key, ...]:
    return tuple(sorted({one.id.key for one in generations}))
