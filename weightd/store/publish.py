"""The one ordered publication, and the marks of retirement and of damage.

The order is what makes a crash harmless.  The files were flushed as they were
written; then each directory of the tree, deepest first; then the manifest; then
the generation's directory.  Only then one rename makes it all visible, and the
flush of ``models/`` makes that last.  A crash before the rename leaves debris
in ``incoming/``; after it, a whole model.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from typing import Final

from weightd.errors import IoError
from weightd.model import Blob, GenerationId, Manifest
from weightd.store import arrival, layout, manifest_file, tree
from weightd.store.faults import AlreadyPublished, StillThere, printable, reported
from weightd.store.ingest import Ingest
from weightd.store.manifest_file import Record, Stamp, Unreadable
from weightd.store.root import Root
from weightd.store.tree import opened

log = logging.getLogger(__name__)

_GENERATION_MODE: Final = 0o755
"""A non-root daemon must be able to move the directory to another parent."""

_CONTENT_MODE: Final = 0o555


def publish(root: Root, ingest: Ingest, manifest: Manifest) -> tuple[Blob, ...]:
    """Make an ingest a model; its blobs, in the order of ``manifest.files``.

    Raises AlreadyPublished, NoSpace, IoError; the ingest is then still to be
    aborted, and nothing is visible.  Raises StillThere when it cannot be taken back.
    """
    record = Record(manifest, _stamps(ingest, manifest))
    name = layout.generation_name(manifest.id)
    with reported(f"publication of {manifest.key}"):
        _must_be_free(root, name, manifest.id)
        _must_be_as_received(ingest)
        _flush_directories(root, ingest.content)
        with opened(ingest.id, root.incoming) as generation:
            data = manifest_file.encode(record)
            own = layout.own_name(layout.MANIFEST, name)
            # An attempt that failed may have left one, or a part of it.
            if tree.exists(own, generation):
                os.unlink(own, dir_fd=generation)
            tree.write_flushed(own, data, generation, 0o444)
            os.fchmod(generation, _GENERATION_MODE)
            os.fsync(generation)
        root.reach("publish.manifest-flushed")
        _appear(root, ingest, record)
    if ingest.resumable:
        _leave_behind(root, layout.generation_name(record.manifest.id))
    ingest.settle()
    return record.blobs(root.block)


def _stamps(ingest: Ingest, manifest: Manifest) -> tuple[Stamp, ...]:
    """The stamp of each file of the manifest, which must list what was received."""
    if ingest.settled:
        raise RuntimeError(f"ingest {ingest.id} is settled already")
    received = {path: written.entry for path, written in ingest.written.items()}
    if received != {entry.path: entry for entry in manifest.files} or ingest.key != manifest.key:
        raise ValueError(f"the manifest of {manifest.key} does not list what was received")
    return tuple(ingest.written[entry.path].stamp for entry in manifest.files)


def _must_be_free(root: Root, name: str, generation: GenerationId) -> None:
    """Raise AlreadyPublished, or OSError for a thing at that name that weightd did not write."""
    try:
        with opened(name, root.models):
            raise AlreadyPublished(generation)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise OSError(
            errno.EEXIST, f"models/{name} is not a directory weightd wrote; move it away"
        ) from None


def _must_be_as_received(ingest: Ingest) -> None:
    """Raise OSError when somebody else wrote below ``incoming/`` meanwhile."""
    for leaf in tree.walk(ingest.content):
        written = ingest.written.get(leaf.path)
        if written is None or Stamp.of(leaf.status) != written.stamp:
            raise OSError(None, f"{printable(leaf.path)} is not what was received")


def _flush_directories(root: Root, top: int) -> None:
    """Set mode and group of a directory and all below it, and flush each, deepest first."""
    with tree.listing(top) as entries:
        below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in below:
        with opened(name, top) as directory:
            _flush_directories(root, directory)
    if root.group is not None:
        os.fchown(top, -1, root.group)
    os.fchmod(top, _CONTENT_MODE)
    os.fsync(top)


def _appear(root: Root, ingest: Ingest, record: Record) -> None:
    """Rename into ``models/`` for good; a flush that fails takes it back."""
    name = layout.generation_name(record.manifest.id)
    os.rename(ingest.id, name, src_dir_fd=root.incoming, dst_dir_fd=root.models)
    try:
        root.reach("publish.renamed")
        os.fsync(root.models)
        os.fsync(root.incoming)
    except OSError as cause:
        # Not acknowledged, so it must not be found by a lookup either.
        _take_back(root, ingest, record, cause)
        raise
    root.reach("publish.parent-flushed")


def _leave_behind(root: Root, name: str) -> None:
    """Take away what only an arrival needs.  Not before: up to the rename it may be resumed."""
    try:
        with opened(name, root.models) as generation:
            for own in arrival.OWN_NAMES:
                with suppress(FileNotFoundError):
                    os.unlink(own, dir_fd=generation)
    except OSError as error:
        # The model is published all the same.  They are counted for nobody, and go with it.
        figures = {"directory": name, "reason": str(error)}
        log.warning("a file that nothing needs any more stays", extra=figures)
    root.reach("publish.tidied")


def _take_back(root: Root, ingest: Ingest, record: Record, cause: OSError) -> None:
    name = layout.generation_name(record.manifest.id)
    try:
        os.rename(name, ingest.id, src_dir_fd=root.models, dst_dir_fd=root.incoming)
    except OSError as error:
        # What is published after all is about to go, and its user's files not with it.
        if ingest.adoption is not None:
            ingest.adoption.give_back()
        ingest.settle()
        failure = IoError(
            call=f"rename of {layout.MODELS}/{name} back to {layout.INCOMING}",
            error=f"{error.strerror}, after {cause.strerror}",
        )
        raise StillThere(failure, record.manifest.id, record.blobs(root.block)) from error


def mark_superseded(root: Root, generation: GenerationId) -> None:
    """Retire a generation for good; one that vanished needs no mark.  Raises NoSpace, IoError."""
    name = layout.generation_name(generation)
    mark = layout.own_name(layout.SUPERSEDED, name)
    with reported(f"retirement of {generation.key}"):
        try:
            with opened(name, root.models) as directory:
                if not tree.exists(mark, directory):
                    tree.write_flushed(mark, b"", directory, 0o444)
                os.fsync(directory)
        except FileNotFoundError:
            return
    root.reach("retire.marked")


def mark_damaged(root: Root, generation: GenerationId, reason: str) -> None:
    """Have every later `check` find it damaged; one that vanished needs no mark.

    What is wrong with a file's bytes no check would see.  Raises NoSpace, IoError.
    """
    name = layout.generation_name(generation)
    mark = layout.own_name(layout.DAMAGED, name)
    with reported(f"mark of damage of {generation.key}"):
        try:
            with opened(name, root.models) as directory:
                if not tree.exists(mark, directory):
                    tree.write_flushed(mark, os.fsencode(reason), directory, 0o444)
                os.fsync(directory)
        except FileNotFoundError:
            return


def restate(root: Root, manifest: Manifest) -> None:
    """Let a generation's record say what ``manifest`` does of the same files.

    Raises NoSpace or IoError; it says the one or the other then.
    """
    name = layout.generation_name(manifest.id)
    with reported(f"record of {manifest.key}"), opened(name, root.models) as directory:
        _replace_manifest(name, directory, manifest, root)


def restore(root: Root, manifest: Manifest) -> None:
    """Make a retired generation current again, under the new sequence of ``manifest``.

    With its old one it would give way to what was published after it, unless
    that was marked.  Raises NoSpace or IoError; whether it is marked is then not
    known, and it is to be marked again.
    """
    name = layout.generation_name(manifest.id)
    with reported(f"return of {manifest.key}"), opened(name, root.models) as directory:
        _replace_manifest(name, directory, manifest, root)
        root.reach("retire.renumbered")
        with suppress(FileNotFoundError):
            os.unlink(layout.own_name(layout.SUPERSEDED, name), dir_fd=directory)
        os.fsync(directory)
        root.reach("retire.unmarked")


def _replace_manifest(name: str, directory: int, manifest: Manifest, root: Root) -> None:
    """Put a manifest of the same files in the place of the one there is, whole or not at all."""
    own = layout.own_name(layout.MANIFEST, name)
    fresh = layout.own_name(layout.NEXT_MANIFEST, name)
    try:
        record = manifest_file.read(name, root.models)
    except Unreadable as error:
        raise OSError(None, str(error)) from error
    with suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=directory)
    data = manifest_file.encode(Record(manifest, record.stamps))
    tree.write_flushed(fresh, data, directory, 0o444)
    os.rename(fresh, own, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)
