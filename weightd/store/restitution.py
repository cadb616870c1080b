"""Where the adopted files of a user came from, and how they go back.

The note of it is on stable storage before the first of them moves.  What cannot
go back, since somebody took its place meanwhile, stays where it is and is told of.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn

from weightd.errors import InvalidRequest, WeightdError
from weightd.store import arrival, ownership, tree
from weightd.store.faults import printable
from weightd.store.root import Root

NAME: Final = arrival.ADOPTED
_NEW_NAME: Final = f"{NAME}.new"

_PASS_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

log = logging.getLogger(__name__)


class Origin(NamedTuple):
    """Where a renamed file came from, and how it stood there."""

    path: str
    place: str
    inode: int
    uid: int
    gid: int
    mode: int
    lists: tuple[tuple[str, str], ...]
    """Its access control lists, in hexadecimal digits."""

    home_uid: int


def note(root: Root, generation: int, directory: str, origins: Sequence[Origin]) -> None:
    """Write down where files of an arrival come from, in place of an earlier note.  Raises OSError.

    ``directory`` is the one in the arrival that they are renamed to.
    """
    record = {"directory": directory, "files": [one._asdict() for one in origins]}
    tree.write_flushed(_NEW_NAME, json.dumps(record).encode(), generation, 0o600)
    os.rename(_NEW_NAME, NAME, src_dir_fd=generation, dst_dir_fd=generation)
    os.fsync(generation)
    os.fsync(root.incoming)


def recover(root: Root, arrival_id: str) -> bool:
    """Give back what an earlier run took and did not publish.

    False when something of somebody's is still there: the arrival stays as it is.  Raises OSError.
    """
    with tree.opened(arrival_id, root.incoming) as generation:
        if not tree.exists(NAME, generation):
            return True
        return not give_back(root, generation)


def give_back(root: Root, generation: int) -> tuple[str, ...]:
    """Put back what is named in an arrival's note; the places of those that are still here."""
    try:
        record = _read(generation)
        if record is None:
            return ()
        name, origins = record
        back: list[str] = []
        with tree.opened(name, generation) as content:
            left = [one.place for one in origins if not _returned(root, content, one, back)]
        # Not one by one: there may be thousands, and everybody waits.
        flush_homes(root, back)
        if not left:
            os.unlink(NAME, dir_fd=generation)
    except (OSError, WeightdError, ValueError, KeyError, TypeError) as error:
        log.error("what was adopted could not be given back, and stays in incoming/: %s", error)
        return ("all of it",)
    return tuple(left)


def _read(generation: int) -> tuple[str, list[Origin]] | None:
    """What was noted, None when nothing was, so nothing has moved."""
    descriptor = tree.open_regular(generation, NAME)
    if descriptor is None:
        return None
    try:
        data = tree.read_whole(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
    fields: Any = json.loads(data)
    return fields["directory"], [Origin(**one) for one in fields["files"]]


def _returned(root: Root, content: int, origin: Origin, back: list[str]) -> bool:
    """Put one ``back``, to be flushed there; False when that cannot be, which is said."""
    parent, _, last = origin.path.rpartition("/")
    try:
        status = _status(content, parent, last)
        if status is None:
            # It never came here, or is back by an earlier attempt.
            return True
        with tree.opened_below(content, parent) as directory:
            # A publication may have come as far as to make it read-only.
            os.fchmod(directory, 0o700)
            if status.st_ino == origin.inode:
                _give(last, directory, origin)
            with home_of(root, origin.place) as (home, name):
                if os.fstat(home).st_uid != origin.home_uid:
                    refuse(origin.place, "its directory is another's now")
                _put_at(last, directory, name, home)
        back.append(origin.place)
    except (OSError, WeightdError) as error:
        log.error("%s could not be given back and stays in incoming/: %s", origin.place, error)
        return False
    root.reach("adopt.given-back")
    return True


def _status(content: int, parent: str, last: str) -> os.stat_result | None:
    try:
        with tree.opened_below(content, parent) as directory:
            return os.stat(last, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _give(name: str, directory: int, origin: Origin) -> None:
    """Let a file have the owner, the mode and the lists that it had."""
    descriptor = os.open(name, tree.READ_FLAGS, dir_fd=directory)
    try:
        ownership.give_to(descriptor, origin.uid, origin.gid)
        os.fchmod(descriptor, origin.mode)
        for kind, value in origin.lists:
            os.setxattr(descriptor, kind, bytes.fromhex(value))
    finally:
        os.close(descriptor)


def _put_at(last: str, directory: int, name: str, home: int) -> None:
    """Rename, but never over what somebody else put there."""
    try:
        os.link(last, name, src_dir_fd=directory, dst_dir_fd=home, follow_symlinks=False)
    except FileExistsError:
        ours = os.stat(last, dir_fd=directory, follow_symlinks=False)
        # Killed between the two names, it has both.
        if not os.path.samestat(ours, os.stat(name, dir_fd=home, follow_symlinks=False)):
            raise
    os.unlink(last, dir_fd=directory)


@contextmanager
def home_of(root: Root, place: str) -> Iterator[tuple[int, str]]:
    """The directory of a file, reached through no link and never within our root; its name there.

    Raises InvalidRequest, and OSError from the block.
    """
    own = os.fstat(root.directory)
    *way, name = place.split("/")[1:]
    directory = os.open("/", _PASS_FLAGS)
    try:
        for one in way:
            try:
                child = os.open(one, _PASS_FLAGS, dir_fd=directory)
            except OSError as error:
                refuse(place, f"weightd finds no way there: {one}: {error.strerror}")
            os.close(directory)
            directory = child
            if os.path.samestat(os.fstat(child), own):
                refuse(place, "it is within weightd's own root")
        yield directory, name
    finally:
        os.close(directory)


def refuse(place: str, reason: str) -> NoReturn:
    """Raise InvalidRequest about a file."""
    raise InvalidRequest(what=f"file {printable(place)}", reason=reason)


def flush_homes(root: Root, places: Iterable[str]) -> None:
    """Bring the names of the directories of files to stable storage, each once.

    Raises InvalidRequest, OSError.
    """
    for place in {place.rpartition("/")[0]: place for place in places}.values():
        with home_of(root, place) as (home, _), tree.opened(".", home) as directory:
            os.fsync(directory)
