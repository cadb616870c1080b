"""Whether models are in use, asked as an eviction would ask, with nothing moved.

The locks and leases of a look stand for microseconds, one model at a time.  A
process that opens a file at that very moment waits so long.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weightd.model import GenerationId
from weightd.store import layout, processes, tree
from weightd.store.faults import SeizeRefused, Use, reported
from weightd.store.processes import Inode, Process
from weightd.store.root import Root
from weightd.store.seize import Seizure


@dataclass(frozen=True, slots=True)
class Sight:
    """A use that the kernel reports, and a process behind it where one can be seen."""

    use: Use
    process: Process | None = None


def look(root: Root, id: GenerationId) -> Use | None:
    """How ``id`` is in use, None when it is not or is not there.  Raises IoError."""
    try:
        with reported(f"look at {id.key}"), Seizure(root) as seizure:
            seizure.lease([seizure.take(id)])
    except SeizeRefused as refused:
        return refused.refused[id]
    return None


def name_processes(root: Root, uses: dict[GenerationId, Use]) -> dict[GenerationId, Sight]:
    """Find a process behind each use, as far as it can be seen.  Raises IoError."""
    with reported("look for processes"):
        inodes = {id: _inodes(root, id) for id in uses}
    held = [id for id, use in uses.items() if use.kind == "hold"]
    lockers = processes.lockers({inodes[id][0] for id in held if inodes[id]})
    wanted = {one for id, use in uses.items() if use.kind == "use" for one in inodes[id][1:]}
    users = processes.users(wanted) if wanted else {}
    return {
        id: Sight(use, _first(inodes[id], lockers if use.kind == "hold" else users))
        for id, use in uses.items()
    }


def _inodes(root: Root, id: GenerationId) -> Sequence[Inode]:
    """The directory handed out, then the files in it; none when it vanished."""
    path = f"{layout.generation_name(id)}/{id.key.last_segment}"
    try:
        with tree.opened_below(root.models, path) as directory:
            own = os.fstat(directory)
            leaves = [leaf.status for leaf in tree.walk(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return [Inode(status.st_dev, status.st_ino) for status in (own, *leaves)]


def _first(inodes: Iterable[Inode], found: dict[Inode, Process]) -> Process | None:
    return next((found[inode] for inode in inodes if inode in found), None)
