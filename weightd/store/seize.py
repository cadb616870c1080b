"""Seizing victims, all or none, and moving them out of reach.

A victim is seized when nobody shares a lock on the directory that was handed
out (the declared hold) and, where the kernel tells, nobody has a file open or
mapped whose last name is going.  A file with a name elsewhere stays readable
under that name and is not asked about: it would be refused for its other
name's readers.  The locks stand until the victim has moved, so that nobody
can begin to use one in between.

Victims with more files together than this process may have open go in groups,
after a look at each; a group that is refused brings those before it back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from weightd.errors import IoError
from weightd.model import GenerationId
from weightd.store import descriptors, layout, lease, tree
from weightd.store.faults import SeizeRefused, Stranded, Use, printable, reported
from weightd.store.layout import Doomed
from weightd.store.root import Root
from weightd.store.tree import Leaf
from weightd.units import round_up

HELD = Use("hold", "a process holds a lock on its directory")


@dataclass(slots=True)
class _Victim:
    """One generation about to go.  ``content`` is None when its directory is no longer one."""

    generation: GenerationId
    name: str
    content: int | None = None
    present: bool = False
    files: list[Leaf] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class _Census:
    """What all victims of one eviction have together, whichever group each goes in.

    ``names`` counts an inode's names among them, ``counted`` are the inodes
    whose bytes stand with one of them already.
    """

    names: Counter[int] = field(default_factory=Counter)
    counted: set[int] = field(default_factory=set)


def doom(root: Root, ids: Sequence[GenerationId]) -> tuple[Doomed, ...]:
    """Seize every victim, then move each into ``doomed/``; in the order of ``ids``.

    Raises SeizeRefused, or IoError and NoSpace from the disk; nothing has moved
    then.  Raises Stranded when some have, and cannot be brought back.  A victim
    that is not there any more is answered as vanished.
    """
    with reported("eviction"):
        census = _Census()
        files = _count_all(root, ids, census)
        groups = _groups(files)
        if len(groups) > 1:
            _ask_all(root, ids)
        doomed: list[Doomed] = []
        try:
            for group in groups:
                doomed += _doom_group(root, group, census)
        except BaseException as error:
            _return(root, doomed, error)
            raise
        return tuple(doomed)


def _count_all(root: Root, ids: Sequence[GenerationId], census: _Census) -> dict[GenerationId, int]:
    """How many files each victim has.  Raises SeizeRefused naming those the disk does not show.

    What cannot be told is not taken for idle, and stands in the way of no other victim.
    """
    files: dict[GenerationId, int] = {}
    unknown: dict[GenerationId, Use] = {}
    for id in ids:
        try:
            files[id] = _count(root, id, census)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            unknown[id] = Use("use", f"whether it is in use cannot be told: {error.strerror}")
    if unknown:
        raise SeizeRefused(unknown)
    return files


def in_use(root: Root, id: GenerationId, *, locked: bool) -> Use | None:
    """Whether ``id`` is in use now, one file after the other; None when it is not there either.

    ``locked`` asks for the lock on its directory too.  Raises OSError.
    """
    try:
        with Seizure(root, _Census()) as seizure:
            victim = seizure.take(id, locked=locked)
            if locked and victim.content is not None:
                # It told what it had to tell; a replica may be about to take it.
                fcntl.flock(victim.content, fcntl.LOCK_UN)
            seizure.ask(victim)
    except SeizeRefused as refused:
        return refused.refused[id]
    return None


class Seizure:
    """The descriptors, locks and leases on a set of victims; leaving it lets them go."""

    def __init__(self, root: Root, census: _Census) -> None:
        self._root = root
        self._census = census
        self._descriptors: list[int] = []
        self._leased: dict[int, GenerationId] = {}
        self._refused: dict[GenerationId, Use] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Closing gives the flock and the leases back; nobody else has these descriptors.
        while self._descriptors:
            os.close(self._descriptors.pop())

    def take(self, generation: GenerationId, *, locked: bool = True) -> _Victim:
        """Lock the directory handed out, and list what is in it."""
        victim = _Victim(generation, layout.generation_name(generation))
        try:
            with tree.opened(victim.name, self._root.models) as directory:
                victim.present = True
                victim.content = self._open(generation.key.last_segment, directory)
        except OSError as error:
            # Not a directory, or a link: whatever stands there, it is not what was published.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
        if victim.content is None:
            return victim
        if locked:
            self._lock(victim.content, generation)
        victim.files = _regular(victim.content)
        return victim

    def lease(self, victims: Sequence[_Victim]) -> None:
        """Take a lease on every file whose last name is among the victims.

        Raises SeizeRefused naming every victim that is in use.
        """
        # A name that came since the census counts as well.
        names = self._census.names | Counter(
            leaf.status.st_ino for victim in victims for leaf in victim.files
        )
        seen: set[int] = set()
        for victim in victims:
            for leaf in victim.files:
                inode = leaf.status.st_ino
                if inode in seen or names[inode] < leaf.status.st_nlink:
                    continue
                seen.add(inode)
                if inode not in self._census.counted:
                    self._census.counted.add(inode)
                    victim.bytes += round_up(leaf.status.st_size, self._root.block)
                if victim.generation not in self._refused:
                    self._lease_one(victim, leaf)
        self._raise_refused()

    def ask(self, victim: _Victim) -> None:
        """Take each lease and give it back at once.  Raises SeizeRefused when one is refused."""
        names = Counter(leaf.status.st_ino for leaf in victim.files)
        for leaf in victim.files:
            if names[leaf.status.st_ino] < leaf.status.st_nlink:
                continue
            self._raise_refused()
            before = len(self._descriptors)
            self._lease_one(victim, leaf)
            while len(self._descriptors) > before:
                os.close(self._descriptors.pop())
        self._leased.clear()
        self._raise_refused()

    def confirm(self) -> None:
        """Refuse what somebody began to wait for since.  Raises SeizeRefused."""
        for descriptor, generation in self._leased.items():
            if not lease.unbroken(descriptor):
                self._refused[generation] = Use("use", "a process is opening one of its files")
        self._raise_refused()

    def _lock(self, content: int, generation: GenerationId) -> None:
        try:
            fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._refused[generation] = HELD

    def _lease_one(self, victim: _Victim, leaf: Leaf) -> None:
        if not self._root.leases_work or victim.content is None:
            return
        shown = printable(leaf.path)
        try:
            descriptor = self._open_file(leaf.path, victim.content)
            granted = lease.take(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            # What the kernel will not tell is not taken for idle.
            unknown = f"whether {shown} is open is unknown: {error}"
            self._refused[victim.generation] = Use("use", unknown)
            return
        if granted:
            self._leased[descriptor] = victim.generation
        else:
            mapped = Use("use", f"a process has {shown} open or mapped")
            self._refused[victim.generation] = mapped

    def _open(self, name: str, parent: int) -> int:
        descriptor = os.open(name, tree.DIRECTORY_FLAGS, dir_fd=parent)
        self._descriptors.append(descriptor)
        return descriptor

    def _open_file(self, path: str, top: int) -> int:
        descriptor = tree.open_below(top, path, tree.READ_FLAGS)
        self._descriptors.append(descriptor)
        return descriptor

    def _raise_refused(self) -> None:
        if self._refused:
            raise SeizeRefused(self._refused)


def _regular(content: int) -> list[Leaf]:
    return [leaf for leaf in tree.walk(content) if stat.S_ISREG(leaf.status.st_mode)]


def _count(root: Root, id: GenerationId, census: _Census) -> int:
    """Enter one victim's names; the descriptors that seizing it takes."""
    path = f"{layout.generation_name(id)}/{id.key.last_segment}"
    try:
        with tree.opened_below(root.models, path) as content:
            files = _regular(content)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return 1
    census.names.update(leaf.status.st_ino for leaf in files)
    return 1 + (len(files) if root.leases_work else 0)


def _groups(files: dict[GenerationId, int]) -> list[list[GenerationId]]:
    """The victims, in order, in groups that may be seized at once.

    Raises SeizeRefused for one that can never be: the others may go without it.
    """
    most = descriptors.most()
    refused = {
        id: Use("use", f"it has {count - 1} files, and this process may have {most} open for it")
        for id, count in files.items()
        if count > most
    }
    if refused:
        raise SeizeRefused(refused)
    budget = descriptors.budget()
    groups: list[list[GenerationId]] = []
    left = 0
    for id, count in files.items():
        if not groups or count > left:
            groups.append([])
            left = budget
        groups[-1].append(id)
        left -= count
    return groups


def _ask_all(root: Root, ids: Sequence[GenerationId]) -> None:
    """Refuse what is in use before any group moves.  Raises SeizeRefused."""
    uses = {id: in_use(root, id, locked=True) for id in ids}
    refused = {id: use for id, use in uses.items() if use is not None}
    if refused:
        raise SeizeRefused(refused)


def _doom_group(root: Root, ids: Sequence[GenerationId], census: _Census) -> list[Doomed]:
    with Seizure(root, census) as seizure:
        victims = [seizure.take(generation) for generation in ids]
        seizure.lease(victims)
        root.reach("evict.seized")
        seizure.confirm()
        return _move(root, victims)


def _move(root: Root, victims: Sequence[_Victim]) -> list[Doomed]:
    """Rename every victim into ``doomed/``; one that cannot move brings the others back."""
    doomed: list[Doomed] = []
    try:
        for victim in victims:
            place = layout.new_id()
            gone = not (victim.present and _rename(root, victim.name, place))
            doomed.append(Doomed(place, 0 if gone else victim.bytes, victim.generation, gone))
            if not gone:
                root.reach("evict.renamed-one")
        root.reach("evict.renamed-all")
        os.fsync(root.doomed)
        os.fsync(root.models)
    except OSError as error:
        _bring_back(root, doomed, error)
        raise
    root.reach("evict.parents-flushed")
    return doomed


def _rename(root: Root, name: str, place: str) -> bool:
    """Move one victim; False when it vanished meanwhile."""
    try:
        os.rename(name, place, src_dir_fd=root.models, dst_dir_fd=root.doomed)
    except FileNotFoundError:
        return False
    return True


def _return(root: Root, doomed: Sequence[Doomed], cause: BaseException) -> None:
    """Bring groups back that had moved, and make that last.  Raises Stranded, or OSError."""
    _bring_back(root, doomed, cause)
    if doomed and not isinstance(cause, Stranded):
        os.fsync(root.models)
        os.fsync(root.doomed)


def _bring_back(root: Root, moved: Sequence[Doomed], cause: BaseException) -> None:
    """Undo the renames.  Raises Stranded when even that fails, and when ``cause`` is that."""
    stranded = list(cause.moved) if isinstance(cause, Stranded) else []
    failure = cause.failure if isinstance(cause, Stranded) else None
    for one in reversed(moved):
        try:
            _rename_back(root, one)
        except OSError as error:
            stranded.append(one)
            failure = failure or IoError(
                call=f"rename of {layout.DOOMED}/{one.id} back to {layout.MODELS}",
                error=f"{error.strerror}, after {getattr(cause, 'strerror', None) or cause}",
            )
    if failure is not None:
        raise Stranded(failure, stranded) from cause


def _rename_back(root: Root, one: Doomed) -> None:
    if one.generation is not None and not one.vanished:
        name = layout.generation_name(one.generation)
        os.rename(one.id, name, src_dir_fd=root.doomed, dst_dir_fd=root.models)
