"""Comparing a published model with its manifest, without reading its bytes."""

from __future__ import annotations

import os
import stat
from typing import Final

from weightd.model import Blob, FileEntry, Manifest
from weightd.store import layout, manifest_file, tree
from weightd.store.faults import Damage, printable, reading
from weightd.store.manifest_file import Record, Stamp, Unreadable
from weightd.store.root import Root
from weightd.store.tree import Leaf

_REASON_MAX: Final = 4096


def check(root: Root, manifest: Manifest) -> Damage | tuple[Blob, ...]:
    """Look at every file: its blobs as they are now, or what is wrong.

    A file that was not published with the model (a byte-code cache, say, that a
    replica left) damages nothing, and is nothing of ours to delete a model for.

    Raises IoError when the disk does not answer, which says nothing about the
    model.
    """
    with reading(f"check of {manifest.key}"):
        try:
            with tree.opened(layout.generation_name(manifest.id), root.models) as generation:
                record = record_of(root, manifest, generation)
                with tree.opened(manifest.key.last_segment, generation) as content:
                    leaves = {leaf.path: leaf for leaf in tree.walk(content)}
        except FileNotFoundError:
            return Damage("its directory is missing")
        except NotADirectoryError:
            return Damage("its directory is no longer a directory")
        except Unreadable as error:
            return Damage(str(error))
    return _compare(root, record, leaves)


def record_of(root: Root, manifest: Manifest, generation: int) -> Record:
    """What a published model says of itself, in its directory, open as ``generation``.

    Raises Unreadable when that is not what ``manifest`` says, or when a reading found the
    model damaged; OSError for a disk that fails.
    """
    name = layout.generation_name(manifest.id)
    found = tree.read_small(layout.own_name(layout.DAMAGED, name), generation, _REASON_MAX)
    if found is not None:
        raise Unreadable(printable(os.fsdecode(found)) or "it was found damaged")
    record = manifest_file.read(name, root.models)
    if (record.manifest.key, record.manifest.files) != (manifest.key, manifest.files):
        raise Unreadable("its manifest was replaced")
    return record


def _compare(root: Root, record: Record, leaves: dict[str, Leaf]) -> Damage | tuple[Blob, ...]:
    stamps = []
    for entry, stamp in zip(record.manifest.files, record.stamps, strict=True):
        leaf = leaves.pop(entry.path, None)
        if leaf is None:
            return Damage(f"{entry.path} is missing")
        if (reason := fault(entry, stamp, leaf.status)) is not None:
            return Damage(reason)
        stamps.append(Stamp.of(leaf.status))
    return record._replace(stamps=tuple(stamps)).blobs(root.block)


def fault(entry: FileEntry, stamp: Stamp, status: os.stat_result) -> str | None:
    """Why a file is not what was published any more, as half a sentence, or None."""
    if stat.S_ISLNK(status.st_mode):
        return f"{entry.path} is a symbolic link now"
    if not stat.S_ISREG(status.st_mode):
        return f"{entry.path} is no longer a regular file"
    if status.st_size != entry.bytes:
        return f"{entry.path} has {status.st_size} bytes instead of {entry.bytes}"
    now = Stamp.of(status)
    # On another inode it is a copy, whose time says nothing.
    if now.inode == stamp.inode and now.written_ns != stamp.written_ns:
        return f"{entry.path} was written to after it was published"
    return None
