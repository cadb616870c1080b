"""What a start finds on the disk: one file opened per model, and nothing unlinked."""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from weightd.model import Blob, GenerationId, Key, Manifest
from weightd.store import arrival, layout, manifest_file, progress, restitution, tree
from weightd.store.arrival import Parked
from weightd.store.faults import printable, reading
from weightd.store.layout import Doomed
from weightd.store.manifest_file import Unreadable
from weightd.store.root import Root
from weightd.units import round_up


@dataclass(frozen=True, slots=True)
class Found:
    """A published generation as its manifest tells it; the files are not looked at yet.

    ``blobs`` go with ``manifest.files``; their inodes are those recorded at
    publication, to be corrected by `Store.check`.
    """

    manifest: Manifest
    blobs: tuple[Blob, ...]
    superseded: bool


class Damaged(NamedTuple):
    """A directory in ``models/`` whose manifest cannot be trusted.

    ``generation`` has only the digest's first digits, which is all its name
    tells; `Store.doom` takes it all the same.  ``bytes`` are the blocks that
    unlinking it will give back.
    """

    name: str
    reason: str
    generation: GenerationId
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ScanReport:
    """``foreign`` are names weightd did not write, relative to the root; they are left alone.

    Of ``parked`` there is one for a key, and what an earlier run may go on with.
    """

    models: list[Found]
    damaged: list[Damaged]
    debris: list[Doomed]
    foreign: list[str]
    parked: list[Parked]


def scan(root: Root) -> ScanReport:
    """Read every manifest; move what was arriving, and cannot be resumed, to ``doomed/``.

    Raises IoError.
    """
    report = ScanReport([], [], [], [], [])
    with reading(f"scan of {root.path}"), _uncollected():
        counted: dict[int, int] = {}
        _scan_models(root, report, counted)
        _scan_incoming(root, report)
        _scan_doomed(root, report, counted)
        for name, _ in _entries(root.directory):
            if not layout.is_own_name(name):
                report.foreign.append(printable(name))
    return report


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking all that was found so far, again and again.

    It takes two fifths of the time of a scan of 10,000 models, and finds nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _scan_models(root: Root, report: ScanReport, counted: dict[int, int]) -> None:
    for name, is_directory in _entries(root.models):
        try:
            record = manifest_file.read(name, root.models) if is_directory else None
        except Unreadable as error:
            _note_unread(root, name, str(error), report, counted)
            continue
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            # One that the disk does not give hides none of the others.
            reason = f"manifest.json cannot be read: {error.strerror}"
            _note_unread(root, name, reason, report, counted)
            continue
        if record is None:
            report.foreign.append(f"{layout.MODELS}/{printable(name)}")
            continue
        mark = layout.own_name(layout.SUPERSEDED, name)
        superseded = tree.exists(f"{name}/{mark}", root.models)
        report.models.append(Found(record.manifest, record.blobs(root.block), superseded))


def _note_unread(
    root: Root, name: str, reason: str, report: ScanReport, counted: dict[int, int]
) -> None:
    """Without a manifest the name tells whose it is: ours, so damaged, or somebody else's."""
    generation = layout.parse_generation_name(name)
    if generation is None:
        report.foreign.append(f"{layout.MODELS}/{printable(name)}")
    else:
        size = _bytes_going(root, name, root.models, counted)
        report.damaged.append(Damaged(name, reason, generation, size))


def _scan_incoming(root: Root, report: ScanReport) -> None:
    """Find what can be resumed, the last for each key; the rest goes to ``doomed/``."""
    found: dict[Key, Parked] = {}
    for name, is_directory in _entries(root.incoming):
        if not (is_directory and layout.is_id(name)):
            report.foreign.append(f"{layout.INCOMING}/{printable(name)}")
            continue
        if not _returned(root, name):
            report.foreign.append(f"{layout.INCOMING}/{name}")
            continue
        parked = _parked(root, name)
        if parked is None:
            _doom_arrival(root, name)
            continue
        other = found.get(parked.key)
        if other is not None:
            older, parked = sorted((other, parked), key=lambda one: one.at)
            _doom_arrival(root, older.id)
        found[parked.key] = parked
    report.parked.extend(found.values())


def _returned(root: Root, name: str) -> bool:
    """Give back what was being adopted when the daemon ended; whether nothing of it is left."""
    try:
        return restitution.recover(root, name)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        # Nobody knows whose files are in it.
        return False


def _parked(root: Root, name: str) -> Parked | None:
    try:
        found = arrival.find(root, name)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        # What the disk does not give cannot be gone on with, and hides nothing else.
        return None
    # Without a byte there is nothing to go on from.
    return found if found is not None and found.bytes else None


def _scan_doomed(root: Root, report: ScanReport, counted: dict[int, int]) -> None:
    for name, is_directory in _entries(root.doomed):
        if not (is_directory and layout.is_id(name)):
            report.foreign.append(f"{layout.DOOMED}/{printable(name)}")
            continue
        report.debris.append(Doomed(name, _bytes_going(root, name, root.doomed, counted)))


def _doom_arrival(root: Root, name: str) -> None:
    """Move an arrival under its own name, or under another when that one was planted there."""
    try:
        os.rename(name, name, src_dir_fd=root.incoming, dst_dir_fd=root.doomed)
    except OSError:
        os.rename(name, layout.new_id(), src_dir_fd=root.incoming, dst_dir_fd=root.doomed)


def _bytes_going(root: Root, name: str, parent: int, counted: dict[int, int]) -> int:
    """The blocks that unlinking gives back; a blob counts where the last of its names is seen.

    What cannot be looked at is left out: its unlinking meets the same fault,
    and says so without keeping anything from starting.
    """
    total = 0
    with suppress(OSError), tree.opened(name, parent) as directory:
        holes = tree.exists(progress.NAME, directory)
        for leaf in tree.walk(directory):
            if not stat.S_ISREG(leaf.status.st_mode) or _is_overhead(leaf.path):
                continue
            inode = leaf.status.st_ino
            counted[inode] = counted.get(inode, 0) + 1
            if counted[inode] == leaf.status.st_nlink:
                size = round_up(leaf.status.st_size, root.block)
                total += tree.occupied(leaf.status, root.block) if holes else size
    return total


def _is_overhead(path: str) -> bool:
    """Whether a file of a generation is charged to no model: its manifest, its mark."""
    return "/" not in path and not layout.is_id(path)


def _entries(directory: int) -> Iterator[tuple[str, bool]]:
    """Name, and whether it is a directory (not a link to one), listed before anything changes."""
    with tree.listing(directory) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    yield from listed
