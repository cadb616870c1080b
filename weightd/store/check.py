"""Comparing a published model with its manifest, without reading its bytes."""

from __future__ import annotations

import os
import stat

from weightd.model import Blob, FileEntry, Manifest
from weightd.store import layout, manifest_file, tree
from weightd.store.faults import Damage, printable, reported
from weightd.store.root import Root
from weightd.store.tree import Leaf


def check(root: Root, manifest: Manifest) -> Damage | tuple[Blob, ...]:
    """Look at every file: its blobs as they are now, or what is wrong.

    Raises IoError when the disk does not answer, which says nothing about the
    model.
    """
    name = layout.generation_name(manifest.id)
    with reported(f"check of {manifest.key}"):
        try:
            with tree.opened(name, root.models) as generation:
                if not tree.exists(layout.MANIFEST, generation):
                    return Damage("its manifest is missing")
                with tree.opened(manifest.key.last_segment, generation) as content:
                    leaves = {leaf.path: leaf for leaf in tree.walk(content)}
        except FileNotFoundError:
            return Damage("its directory is missing")
        except NotADirectoryError:
            return Damage("its directory is no longer a directory")
    return _compare(root, manifest, leaves)


def _compare(root: Root, manifest: Manifest, leaves: dict[str, Leaf]) -> Damage | tuple[Blob, ...]:
    inodes = []
    for entry in manifest.files:
        leaf = leaves.pop(entry.path, None)
        if leaf is None:
            return Damage(f"{entry.path} is missing")
        if (reason := _fault(entry, leaf.status)) is not None:
            return Damage(reason)
        inodes.append(leaf.status.st_ino)
    if leaves:
        return Damage(f"{printable(min(leaves))} was not published with it")
    return manifest_file.blobs(manifest, inodes, root.block)


def _fault(entry: FileEntry, status: os.stat_result) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return f"{entry.path} is a symbolic link now"
    if not stat.S_ISREG(status.st_mode):
        return f"{entry.path} is no longer a regular file"
    if status.st_size != entry.bytes:
        return f"{entry.path} has {status.st_size} bytes instead of {entry.bytes}"
    return None
