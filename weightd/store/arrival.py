"""What an arrival that may be resumed says of itself, and how a start finds it.

``incoming/<id>/.arrival.json`` names the key, in a line of JSON, and keeps its
owner's note, which is all the rest.  An arrival without one that can be read is debris.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from weightd.model import Key
from weightd.store import progress, tree
from weightd.store.root import Root
from weightd.store.tree import Leaf

NAME: Final = ".arrival.json"
"""No key has a dot ahead, so it never stands where a model's directory does."""

_NEW_NAME: Final = ".arrival.new"

ADOPTED: Final = ".adopted.json"
"""Where the files of a user came from that are to be a model; see `store.adoption`."""

OWN_NAMES: Final = (NAME, _NEW_NAME, ADOPTED, progress.NAME)
"""What stands in an arrival beside the model, and goes once it is published."""

BYTES_MAX: Final = 64 << 20
"""A longer one was not written by weightd."""


_Note: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class Parked:
    """An arrival that nobody is bringing on at the moment.

    ``bytes`` are its blocks on the disk, ``note`` is what its owner wrote down
    last, ``at`` when anything was last written (seconds since the epoch), and
    ``paths`` are the files of which something is here.
    """

    id: str
    key: Key
    bytes: int
    note: _Note
    at: float
    paths: frozenset[str]


def write(directory: int, key: Key, note: bytes) -> None:
    """Put the note in place of an earlier one, whole or not at all.  Raises OSError."""
    data = json.dumps({"key": str(key)}).encode() + b"\n" + note
    if len(data) > BYTES_MAX:
        raise ValueError(f"a note of {len(note)} bytes")
    with suppress(FileNotFoundError):
        os.unlink(_NEW_NAME, dir_fd=directory)
    tree.write_flushed(_NEW_NAME, data, directory, 0o600)
    os.rename(_NEW_NAME, NAME, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def find(root: Root, arrival: str) -> Parked | None:
    """The arrival in ``incoming/``, None when it is nothing that can be resumed.

    A name that it shares with a published model is taken away: it costs nothing
    to have it again, and as the last one it would be bytes that nobody counts.

    Raises OSError.
    """
    with tree.opened(arrival, root.incoming) as directory:
        told = _read(directory)
        if told is None or not progress.is_sound(directory):
            return None
        key, note = told
        try:
            with tree.opened(key.last_segment, directory) as content:
                unlink_shared(content)
                leaves = list(tree.walk(content))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _parked(root, arrival, key, note, leaves, os.fstat(directory))


def note_of(root: Root, parked: Parked) -> bytes:
    """What its owner wrote down.  Raises OSError, also when it is not there any more."""
    with tree.opened(parked.id, root.incoming) as directory:
        told = _read(directory)
    if told is None or told[0] != parked.key:
        raise FileNotFoundError(None, f"{NAME} says nothing")
    return told[1]


def _parked(
    root: Root, arrival: str, key: Key, note: bytes, leaves: list[Leaf], status: os.stat_result
) -> Parked:
    files = [leaf for leaf in leaves if stat.S_ISREG(leaf.status.st_mode)]
    return Parked(
        id=arrival,
        key=key,
        bytes=sum(tree.occupied(leaf.status, root.block) for leaf in files),
        note=note,
        at=max([status.st_mtime, *(leaf.status.st_mtime for leaf in files)]),
        paths=frozenset(leaf.path for leaf in files),
    )


def unlink_shared(directory: int) -> None:
    """Take away every name that is not its file's last.  Raises OSError."""
    for leaf in list(tree.walk(directory)):
        if stat.S_ISREG(leaf.status.st_mode) and leaf.status.st_nlink > 1:
            with tree.opened_below(directory, leaf.path.rpartition("/")[0]) as parent:
                os.unlink(leaf.path.rpartition("/")[2], dir_fd=parent)


def _read(directory: int) -> tuple[Key, bytes] | None:
    """What the note says, None for one that says nothing.  Raises OSError."""
    descriptor = tree.open_regular(directory, NAME, checked=True)
    if descriptor is None:
        return None
    try:
        size = os.fstat(descriptor).st_size
        data = b"" if size > BYTES_MAX else tree.read_whole(descriptor, size)
    finally:
        os.close(descriptor)
    head, ended, note = data.partition(b"\n")
    try:
        fields: Any = json.loads(head)
        return (Key.parse(fields["key"]), note) if ended else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
