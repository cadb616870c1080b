"""Whether models are in use, asked nearly as an eviction would ask, with nothing moved.

A look disturbs as little as it can.  Holds are read from the kernel's table of
locks.  Not every hold shows there (another pid namespace's need not), so that
each directory's lock is tried now and then too: for an instant in which a
replica's own attempt would be refused if it does not wait.  A lease stands for
microseconds, on one file at a time; who opens the file just then waits so long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from weightd.errors import IoError
from weightd.model import GenerationId
from weightd.store import layout, processes, seize, tree
from weightd.store.faults import Use, reading
from weightd.store.processes import Flock, Inode, Process
from weightd.store.root import Root

PROBE_SECONDS: Final = 60.0
"""Between two attempts at the lock of a directory that seems idle."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A use that the kernel reports, and who is behind it, as far as can be seen.

    Of a hold these are all the ``processes``, of a use one.
    """

    use: Use
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look saw: the ``uses``; what is in neither is idle, what ``failed`` is not known."""

    uses: dict[GenerationId, Use] = field(default_factory=dict)
    failed: dict[GenerationId, IoError] = field(default_factory=dict)


class Watch:
    """Looks at models, and remembers what it tried when.  Any thread may call it.

    ``seizing`` keeps seizures away meanwhile: each would see the other's
    descriptors as use.
    """

    def __init__(
        self,
        root: Root,
        seizing: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._seizing = seizing
        self._clock = clock
        self._tried: dict[GenerationId, float] = {}
        self._held: set[GenerationId] = set()
        """Those whose lock was refused when it was tried last."""

    def look(self, ids: Iterable[GenerationId], *, for_holds: bool = False) -> Looked:
        """Look at each; one that the disk does not show hides no other.

        ``for_holds`` tries each lock that the kernel's table does not show,
        however short ago it was tried.
        """
        try:
            with reading("look for holds"):
                held = self._held_inodes(processes.flocks())
        except IoError as error:
            return Looked(failed=dict.fromkeys(ids, error))
        looked = Looked()
        for id in ids:
            try:
                with self._seizing, reading(f"look at {id.key}"):
                    use = self._look(id, held, for_holds)
            except IoError as error:
                looked.failed[id] = error
                continue
            if use is not None:
                looked.uses[id] = use
        return looked

    def forget(self, ids: Iterable[GenerationId]) -> None:
        """They are gone: a directory of the same name is another one."""
        for id in ids:
            self._tried.pop(id, None)
            self._held.discard(id)

    def name(self, uses: Mapping[GenerationId, Use]) -> dict[GenerationId, Sight]:
        """Find who is behind each use, as far as it can be seen.  Raises IoError."""
        with reading("look for processes"):
            inodes = {
                id: _inodes(self._root, id, files=use.kind == "use") for id, use in uses.items()
            }
            locks = processes.flocks()
            device = self._device(locks)
        holds = {
            id: Inode(device, inodes[id][0].number)
            for id, use in uses.items()
            if use.kind == "hold" and inodes[id]
        }
        lockers = processes.lockers(locks, set(holds.values()))
        wanted = {one for id, use in uses.items() if use.kind == "use" for one in inodes[id][1:]}
        users = processes.users(wanted) if wanted else {}
        named = {}
        for id, use in uses.items():
            if use.kind == "use":
                named[id] = Sight(use, _first(inodes[id], users))
            else:
                named[id] = Sight(use, lockers.get(holds[id], ()) if id in holds else ())
        return named

    # -- insides ---------------------------------------------------------------

    def _look(self, id: GenerationId, held: Collection[int], for_holds: bool) -> Use | None:
        own = _inodes(self._root, id, files=False)
        if not own:
            self.forget([id])
            return None
        if own[0].number in held:
            self._held.discard(id)
            return seize.HELD
        now = self._clock()
        due = now - self._tried.get(id, float("-inf")) >= PROBE_SECONDS
        # One that is refused is in nobody's way, and tells when the hold ends.
        tried = due or for_holds or id in self._held
        use = seize.in_use(self._root, id, locked=tried)
        if tried:
            self._tried[id] = now
            if use == seize.HELD:
                self._held.add(id)
            else:
                self._held.discard(id)
        return use

    def _held_inodes(self, locks: Sequence[Flock]) -> frozenset[int]:
        device, own = self._device(locks), os.getpid()
        return frozenset(
            lock.inode.number
            for lock in locks
            # An eviction's lock, in this very process, is no hold.
            if lock.inode.device == device and not (lock.exclusive and lock.pid == own)
        )

    def _device(self, locks: Iterable[Flock]) -> int:
        """The root's device as the table of locks numbers it, which our own lock there tells."""
        status, own = os.fstat(self._root.lock), os.getpid()
        for lock in locks:
            if lock.pid == own and lock.exclusive and lock.inode.number == status.st_ino:
                return lock.inode.device
        return status.st_dev


def _inodes(root: Root, id: GenerationId, *, files: bool = True) -> Sequence[Inode]:
    """The directory handed out, then the files in it; none when it vanished."""
    path = f"{layout.generation_name(id)}/{id.key.last_segment}"
    try:
        with tree.opened_below(root.models, path) as directory:
            own = os.fstat(directory)
            leaves = [leaf.status for leaf in tree.walk(directory)] if files else []
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return [Inode(status.st_dev, status.st_ino) for status in (own, *leaves)]


def _first(inodes: Iterable[Inode], found: Mapping[Inode, Process]) -> tuple[Process, ...]:
    return tuple(found[inode] for inode in inodes if inode in found)[:1]
