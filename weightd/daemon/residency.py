"""Which models are here, in files that others on the node read: a scheduler's eyes without RBAC.

``node_labels`` is read by Node Feature Discovery, which makes labels of it; ``textfile`` by
node-exporter, which makes series of it, one for each model, as the daemon's own metrics have none.
Both are written when the daemon is ready, as models come and go, and stay when it ends: so do the
models, and the next daemon serves them.  Where none comes the labels expire.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from weightd.cache import WeightCache
from weightd.cache.tasks import completed
from weightd.daemon.beside import beside
from weightd.labels import label_of
from weightd.store import replace_file

log = logging.getLogger(__name__)

BETWEEN_SECONDS: Final = 1.0
"""Files are written at most this often, however many models come and go."""

LOOK_SECONDS: Final = 30.0
"""How often the list is compared with what was written, whatever was told meanwhile."""

RETRIED_SECONDS: Final = 5.0
"""After how long at most what could not be written is tried again."""

EXPIRES_SECONDS: Final = 3600.0
RENEWED_SECONDS: Final = 1200.0
"""How long labels hold, and after how long they are written anew although nothing has changed."""

LABEL_BYTES_MOST: Final = 64_000
"""Node Feature Discovery ignores a file of more than 64 KiB, with all that is in it."""

_CHANGES: Final = frozenset({"published", "replaced", "evicted", "damaged", "lost"})

Models: TypeAlias = Mapping[str, int]
"""The bytes of each model by its key, the longest unused first."""


def node_labels(models: Models, until: datetime) -> str:
    """A feature file: a label for each model, for the last used ones where not all have room."""
    head = f"# +expiry-time={until:%Y-%m-%dT%H:%M:%SZ}\n"
    lines: list[str] = []
    room = LABEL_BYTES_MOST - len(head)
    for key in reversed(list(models)):
        line = f"{label_of(key)}=true\n"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return head + "".join(sorted(lines))


def textfile(models: Models) -> str:
    """The exposition of a gauge with a series for each model."""
    head = (
        "# HELP weightd_model_bytes Bytes of each model that is on this node.\n"
        "# TYPE weightd_model_bytes gauge\n"
    )
    # A key has no character that would need a backslash.
    lines = (f'weightd_model_bytes{{key="{key}"}} {models[key]}\n' for key in sorted(models))
    return head + "".join(lines)


@dataclass(slots=True)
class _File:
    """One of the two, and what the disk said of it last."""

    setting: str
    path: Path
    content: Callable[[Models], str]
    failure: str | None = field(default=None, init=False)

    async def write(self, models: Models) -> bool:
        """Whether it was written; each new reason why not is logged once."""
        try:
            # To its end, also when it is the last time but one: two at once would be in each
            # other's way.
            await completed(asyncio.to_thread(self._replace, models))
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self.failure:
                log.warning(
                    "a file for others on the node cannot be written; let this user make files "
                    "in its directory; it is tried again",
                    extra={"setting": self.setting, "file": self.path, "reason": reason},
                )
            self.failure = reason
            return False
        if self.failure is not None:
            log.info(
                "a file for others on the node is written again",
                extra={"setting": self.setting, "file": self.path},
            )
            self.failure = None
        return True

    def _replace(self, models: Models) -> None:
        replace_file(self.path, self.content(models).encode())


class Residency:
    """Keeps the files true."""

    def __init__(self, cache: WeightCache, labels: Path | None, series: Path | None) -> None:
        self._cache = cache
        self._files: list[_File] = []
        if labels is not None:
            self._files.append(_File("node_labels", labels, _labels_from_now))
        if series is not None:
            self._files.append(_File("textfile", series, textfile))
        self._changed = asyncio.Event()
        self._written: Models | None = None
        self._written_at = 0.0

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Write when this is entered, as things change, and when it is left."""
        if not self._files:
            yield
            return
        listening = beside(self._listen(), "residency events")
        keeping = beside(self._keep(), "residency")
        try:
            async with listening, keeping:
                yield
        finally:
            await self._write()

    async def _listen(self) -> None:
        # From the first of this run: what happened before this began is told as well.
        async for event in self._cache.events(0):
            if event is not None and event.type in _CHANGES:
                self._changed.set()

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            await self._write()
            await asyncio.sleep(BETWEEN_SECONDS)
            try:
                failed = self._written is None
                async with asyncio.timeout(RETRIED_SECONDS if failed else LOOK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _write(self) -> None:
        """Write what differs from what was written, or is soon to expire."""
        models = {str(key): size for key, size in self._cache.resident()}
        now = time.monotonic()
        known = self._written is not None and now < self._written_at + RENEWED_SECONDS
        if known and models == self._written:
            return
        done: Sequence[bool] = [await file.write(models) for file in self._files]
        self._written, self._written_at = (models, now) if all(done) else (None, 0.0)


def _labels_from_now(models: Models) -> str:
    return node_labels(models, datetime.now(UTC) + timedelta(seconds=EXPIRES_SECONDS))
