"""Whether the cache is alive: its loop turns, its threads answer, its disk takes a write.

A full disk is not a dead one.  One that is read-only, fails or hangs is.
"""

from __future__ import annotations

import asyncio
from typing import Final

from weightd.cache.context import Context
from weightd.errors import IoError
from weightd.ledger import Usage
from weightd.store import NoSpace

PATIENCE: Final = 30.0
"""Seconds that a round may take.  A flush may stand behind somebody's unlink of a huge file,
which takes about a second for each GB on some filesystems."""


class Pulse:
    """The outcome of the last beat, for all who ask: none of them makes the disk write."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._round: asyncio.Task[None] | None = None
        self._began = 0.0
        self._waits_for = ""
        self._failure: str | None = None

    @property
    def trouble(self) -> str | None:
        """What is wrong, as a sentence with its figures; None when nothing is, or none beat yet."""
        if ailing := self._context.health.ailing:
            return (
                f"What goes on by itself keeps failing ({', '.join(ailing)}); weightd's log has "
                "the tracebacks."
            )
        return self._failure

    @property
    def usage(self) -> Usage:
        """The sums of the books, which need no disk."""
        return self._context.ledger.usage()

    async def beat(self, patience: float = PATIENCE) -> str | None:
        """Go round, and say what is wrong by then; see `trouble`.

        A round that takes longer than ``patience`` seconds goes on, and the next beat
        waits for its end instead of beginning another.
        """
        loop = asyncio.get_running_loop()
        if self._round is None:
            self._began = loop.time()
            self._round = self._context.tasks.spawn(self._go_round(), "pulse")
        await asyncio.wait({self._round}, timeout=patience)
        if not self._round.done():
            self._failure = f"{self._waits_for} for {loop.time() - self._began:.0f} s."
        else:
            ended, self._round = self._round, None
            try:
                ended.result()
            except IoError as error:
                self._failure = error.detail
            else:
                self._failure = None
        return self.trouble

    async def _go_round(self) -> None:
        """Raises IoError.

        Asked are the threads that no single call keeps for long.
        """
        workers = self._context.workers
        for name, run in (
            ("read", workers.disk),
            ("record pins", workers.pins),
            ("look for use", workers.seize),
        ):
            self._waits_for = f"The threads that {name} have not answered"
            await run(_nothing)
        root = self._context.store.root
        self._waits_for = f"The disk has not taken a small flushed write in {root}"
        try:
            await workers.commit(self._context.store.prove)
        except NoSpace:
            return


def _nothing() -> None:
    """What a thread is asked that need only answer."""
