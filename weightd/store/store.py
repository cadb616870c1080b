"""`Store`: everything on disk behind one object.

Every method blocks and may be called from any thread.  The store decides
nothing about bytes or victims; it is told what to write and what to doom, and
makes that last.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from weightd.failpoints import Reach, unarmed
from weightd.model import Blob, GenerationId, Key, Manifest, file_path_fault
from weightd.store import (
    arrival,
    check,
    layout,
    lease,
    libc,
    processes,
    publish,
    root,
    scan,
    seize,
    tree,
    unlink,
    verify,
    warm,
)
from weightd.store.arrival import Parked
from weightd.store.faults import Damage, StillThere, Stranded, Use, reading, reported
from weightd.store.ingest import Ingest
from weightd.store.layout import Doomed
from weightd.store.look import Looked, Sight, Watch
from weightd.store.mounts import COMMITTED, LATE_SECONDS, kind_of
from weightd.store.processes import Process
from weightd.store.scan import ScanReport
from weightd.units import round_up

# A generation's directory, the directory handed out, the manifest.
_BLOCKS_PER_MODEL: Final = 3

LEASED_SECONDS: Final = 2.0
"""How long an open waits for somebody's lease to end."""


@dataclass(frozen=True, slots=True)
class Filesystem:
    """Bytes of the root's filesystem: ``total`` as df counts it, ``free`` to this user."""

    total: int
    free: int


class Store:
    """The owner of one root.  Made by `open`; closing it lets another daemon have the root."""

    def __init__(self, taken: root.Root) -> None:
        self._root = taken
        self._seizing = threading.Lock()
        kind = kind_of(self.root)
        self.freeing_seen_within = LATE_SECONDS.get(kind, 0.0)
        """Seconds after which a settled `filesystem` tells, at the latest, what was unlinked."""
        self.must_settle = kind in COMMITTED
        """Whether `filesystem` tells old figures unless it is asked for settled ones."""
        self._watch = Watch(taken, self._seizing)
        self._counting = threading.Lock()
        self._models = 0

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        file_mode: int = 0o444,
        group: int | None = None,
        boot: str | None = None,
        reach: Reach = unarmed,
    ) -> Self:
        """Take the root at ``path``, making what is missing.

        ``boot`` tells one boot of the machine from another; by default the
        kernel's own id does.  Ignores SIGIO when called in the main thread, see `store.lease`.
        Raises RootUnusable with one line that says what to do.
        """
        lease.ignore_breaks()
        return cls(root.take(path, file_mode=file_mode, group=group, boot=boot, reach=reach))

    def close(self) -> None:
        """Give the root back.  No other method is running, and none is called again."""
        self._root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def root(self) -> Path:
        """The root's absolute path."""
        return self._root.path

    @property
    def block(self) -> int:
        """Bytes per filesystem block, in which everything is charged."""
        return self._root.block

    def blocks(self, count: int) -> int:
        """The bytes that a file of ``count`` bytes occupies in whole blocks."""
        return round_up(count, self.block)

    @property
    def leases_work(self) -> bool:
        """Whether the kernel tells here who has a file open; without it only flock counts."""
        return self._root.leases_work

    @property
    def state_path(self) -> Path:
        """Where the pins' database stands."""
        return self._root.path / layout.STATE

    @property
    def history_path(self) -> Path:
        """Where the disposable database stands."""
        return self._root.path / layout.HISTORY

    def scan(self) -> ScanReport:
        """Find what a start finds; see `ScanReport`.  Raises IoError."""
        report = scan.scan(self._root)
        with self._counting:
            self._models = len(report.models) + len(report.damaged)
        return report

    def begin(self, key: Key, *, resume: Parked | None = None) -> Ingest:
        """An arrival that is yet to be made, by entering it or by `Ingest.make`.

        With ``resume`` it goes on with what was parked of ``key``.
        """
        return Ingest(self._root, key, resume)

    def note_of(self, parked: Parked) -> bytes:
        """The note of a parked arrival, read again.  Raises IoError."""
        with reading(f"read of the note of {parked.key}"):
            return arrival.note_of(self._root, parked)

    def drop(self, parked: Parked) -> Doomed:
        """Give a parked arrival up: it is to be unlinked.  Raises NoSpace, IoError."""
        return unlink.drop(self._root, parked)

    def publish(self, ingest: Ingest, manifest: Manifest) -> tuple[Path, tuple[Blob, ...]]:
        """Make an arrival a model: the path handed out, and its blobs.

        Raises AlreadyPublished, NoSpace, IoError; nothing is visible then.  Raises
        StillThere when it is, and is to be doomed.
        """
        try:
            blobs = publish.publish(self._root, ingest, manifest)
        except StillThere:
            self._count(1)
            raise
        self._count(1)
        return self.path_of(manifest.id), blobs

    def path_of(self, generation: GenerationId) -> Path:
        """The directory that is handed out; it ends in the model's own name."""
        return self._root.path / self.relative_path_of(generation)

    def relative_path_of(self, generation: GenerationId) -> str:
        """The same, below the root."""
        return f"{layout.MODELS}/{layout.generation_name(generation)}/{generation.key.last_segment}"

    def mark_superseded(self, generation: GenerationId) -> None:
        """Retire a generation for good.  Raises NoSpace, IoError."""
        publish.mark_superseded(self._root, generation)

    def restate(self, manifest: Manifest) -> None:
        """Let a generation's record say what ``manifest`` does of the same files.

        Raises NoSpace, IoError.
        """
        publish.restate(self._root, manifest)

    def restore(self, manifest: Manifest) -> None:
        """Make a retired generation current again, as ``manifest``, whose sequence is new.

        Raises NoSpace, IoError; it is then to be marked superseded again.
        """
        publish.restore(self._root, manifest)

    def doom(self, ids: Sequence[GenerationId]) -> tuple[Doomed, ...]:
        """Seize all of ``ids``, then move each out of reach, in that order.

        Raises SeizeRefused, IoError, NoSpace; nothing has moved then.  Raises
        Stranded, which tells what has.
        """
        try:
            # Two seizures at once would each see the other's descriptors as use.
            with self._seizing:
                doomed = seize.doom(self._root, ids)
        except Stranded as stranded:
            self._watch.forget(ids)
            self._count(-len(stranded.moved))
            raise
        self._watch.forget(ids)
        self._count(-len(doomed))
        return doomed

    def look(self, ids: Iterable[GenerationId], *, for_holds: bool = False) -> Looked:
        """How each of ``ids`` that is in use is; see `store.look`."""
        return self._watch.look(ids, for_holds=for_holds)

    def name_processes(self, uses: Mapping[GenerationId, Use]) -> dict[GenerationId, Sight]:
        """Who is behind each use, as far as can be seen; it may take seconds.

        Raises IoError.
        """
        return self._watch.name(uses)

    def gone(self, seen: Mapping[GenerationId, Process]) -> list[GenerationId]:
        """Those whose process is there no more, or is another one under its number."""
        return [id for id, process in seen.items() if not processes.alive(process)]

    def unlink(self, doomed: Doomed, freed: unlink.Freed) -> int:
        """Unlink what was doomed; the bytes left because somebody has them open.

        See `store.unlink`.  Raises IoError; then, or with bytes left, call again.
        """
        return unlink.unlink(self._root, doomed, freed)

    def check(self, manifest: Manifest) -> Damage | tuple[Blob, ...]:
        """Compare a model with its manifest: the blobs as they are, or the damage.

        Raises IoError, which says nothing about the model.
        """
        return check.check(self._root, manifest)

    def verify(self, manifest: Manifest, reading: verify.Reading) -> verify.Verified | None:
        """Read a model to the last byte; None once ``reading`` was stopped.  See `store.verify`.

        In a thread of its own, whose reads are idle ones from then on.  Raises IoError for a
        disk that fails otherwise than by not giving the bytes, which says nothing of the model.
        """
        return verify.verify(self._root, manifest, self._seizing, reading)

    def cut_short(self) -> None:
        """Have whoever reads or copies whole files give it up, from now on, with Draining."""
        self._root.stopping.set()

    def warm(self, manifest: Manifest, warming: warm.Warming) -> int | None:
        """Read a model into the page cache; the bytes that are there then, or None once stopped.

        See `store.warm`.  Raises FileNotFoundError when it vanished or is damaged, IoError.
        """
        return warm.warm(self._root, manifest, self._seizing, warming)

    def mark_damaged(self, generation: GenerationId, reason: str) -> None:
        """Have every later check find a model damaged.  Raises NoSpace, IoError."""
        publish.mark_damaged(self._root, generation, reason)

    def open_file(self, generation: GenerationId, path: str) -> int:
        """A read-only descriptor of a published file; never one outside the model.

        Raises FileNotFoundError when it is not there (the model vanished or is
        damaged), IoError when the disk fails.  A lease on it, of a look that is
        over at once, is waited for, within a bound.
        """
        if file_path_fault(path) is not None:
            raise FileNotFoundError(path)
        below = f"{layout.generation_name(generation)}/{generation.key.last_segment}/{path}"
        with reading(f"open of {path} of {generation.key}"):
            descriptor = _open_patiently(self._root.models, below)
        if descriptor is None:
            raise FileNotFoundError(path)
        return descriptor

    def filesystem(self, *, settled: bool = False) -> Filesystem:
        """Ask the filesystem.  Raises IoError.

        With ``settled`` it is first made to commit where it tells nothing new before.
        Right after an unlink it may still tell the old figures, see `freeing_seen_within`.
        """
        if settled and self.must_settle:
            with reading(f"syncfs of {self.root}"):
                libc.call("syncfs", ctypes.c_int(self._root.directory))
        with reading(f"statvfs of {self.root}"):
            answer = os.fstatvfs(self._root.directory)
        used = answer.f_blocks - answer.f_bfree
        total = (used + answer.f_bavail) * answer.f_frsize
        return Filesystem(total=total, free=answer.f_bavail * answer.f_frsize)

    def prove(self) -> None:
        """Have the disk take a small flushed write.  Raises IoError, or NoSpace for a full one."""
        with reported(f"a small flushed write in {self.root}"):
            root.prove(self._root)

    def overhead(self) -> int:
        """An estimate of the bytes that are nobody's weights: databases, manifests, directories.

        Raises IoError.
        """
        total = self._models * _BLOCKS_PER_MODEL * self.block
        for name in (layout.STATE, layout.HISTORY):
            for suffix in ("", "-wal", "-shm"):
                total += self._occupied(name + suffix)
        return total

    def _occupied(self, name: str) -> int:
        with reading(f"stat of {name}"):
            try:
                return os.stat(name, dir_fd=self._root.directory).st_blocks * 512
            except FileNotFoundError:
                return 0

    def _count(self, change: int) -> None:
        with self._counting:
            self._models = max(0, self._models + change)


def _open_patiently(top: int, path: str) -> int | None:
    """Open without waiting in the kernel, where nothing bounds the wait, but again and again."""
    until, pause = time.monotonic() + LEASED_SECONDS, 0.0005
    while True:
        try:
            return tree.open_regular(top, path)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
