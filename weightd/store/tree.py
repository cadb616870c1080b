"""Directories by descriptor, so that no symlink is ever followed.

Every open here has O_NOFOLLOW on each component.  O_NONBLOCK keeps a planted
fifo, or a file another process holds a lease on, from stopping the thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from weightd.store.faults import printable
from weightd.units import round_up

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
REWRITE_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Deeper than any model may be (model.FILE_DEPTH_MAX); what is deeper was planted.
DEPTH_MAX: Final = 64


class TooDeep(OSError):
    """A directory is below more others than in any model."""


def _unheard(_: str) -> None:
    pass


class Leaf(NamedTuple):
    """Anything but a directory below a walked one, as lstat sees it."""

    path: str
    status: os.stat_result


@contextmanager
def opened(name: str, parent: int) -> Iterator[int]:
    """The directory ``name`` in ``parent``, open for the block.  Raises OSError."""
    descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(top: int, path: str, flags: int) -> int:
    """Open the file at ``path`` below the directory ``top``.  Raises OSError.

    ``path`` is one that `model.file_path_fault` has no fault with.
    """
    *parents, last = path.split("/")
    parent = top
    try:
        for name in parents:
            child = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
            if parent != top:
                os.close(parent)
            parent = child
        return os.open(last, flags, dir_fd=parent)
    finally:
        if parent != top:
            os.close(parent)


@contextmanager
def opened_below(top: int, path: str) -> Iterator[int]:
    """The directory at ``path`` below ``top``, ``top`` itself for "".  Raises OSError."""
    if not path:
        yield top
        return
    descriptor = open_below(top, path, DIRECTORY_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(top: int, path: str, *, checked: bool = False) -> int | None:
    """Open a regular file for reading; None when there is none at ``path``.  Raises OSError.

    ``checked`` says that the directories on its way are known to be no links,
    which saves opening each.
    """
    try:
        if checked:
            descriptor = os.open(path, READ_FLAGS, dir_fd=top)
        else:
            descriptor = open_below(top, path, READ_FLAGS)
    except OSError as error:
        # ELOOP: a symlink, ENXIO: a socket.  Neither is a file anybody published.
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    regular = False
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    finally:
        # Also when it cannot be told: a descriptor that stayed would look like use for ever.
        if not regular:
            os.close(descriptor)
    return descriptor if regular else None


@contextmanager
def listing(directory: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of an open directory as it is now.  Raises OSError.

    By a descriptor of its own: btrfs tells through one, however often it is
    asked, nothing that came after that was opened.
    """
    with opened(".", directory) as fresh, os.scandir(fresh) as entries:
        yield entries


def walk(
    top: int,
    prefix: str = "",
    depth: int = DEPTH_MAX,
    entering: Callable[[str], object] = _unheard,
) -> Generator[Leaf, None, None]:
    """Every leaf below ``top``.  What vanishes meanwhile is passed over.

    ``entering`` is told of each directory.  Raises OSError, TooDeep among them.
    """
    with listing(top) as entries:
        for entry in entries:
            path = prefix + entry.name
            try:
                if not entry.is_dir(follow_symlinks=False):
                    yield Leaf(path, entry.stat(follow_symlinks=False))
                    continue
                child = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=top)
            except FileNotFoundError:
                continue
            try:
                if depth == 0:
                    raise TooDeep(None, f"{printable(path)} is deeper than any model")
                entering(path)
                yield from walk(child, path + "/", depth - 1, entering)
            finally:
                os.close(child)


def exists(name: str, parent: int) -> bool:
    """Whether anything, a dangling symlink included, has this name.  Raises OSError."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``; a short write is continued.  Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def occupied(status: os.stat_result, block: int) -> int:
    """The bytes of blocks that a regular file has, which may have holes.

    Never more than a file without holes is charged for.
    """
    return min(round_up(status.st_size, block), status.st_blocks * 512)


def read_whole(descriptor: int, size: int) -> bytes:
    """What follows in an open file of ``size`` bytes, one more if it has grown.  Raises OSError."""
    data = os.read(descriptor, size + 1)
    while len(data) < size:
        more = os.read(descriptor, size + 1 - len(data))
        if not more:
            break
        data += more
    return data


def read_small(name: str, parent: int, most: int) -> bytes | None:
    """The first ``most`` bytes of a file, None when there is none.  Raises OSError."""
    descriptor = open_regular(parent, name, checked=True)
    if descriptor is None:
        return None
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def write_flushed(name: str, data: bytes, parent: int, mode: int) -> None:
    """Create ``name`` with ``data``, on stable storage but for its directory.  Raises OSError."""
    descriptor = os.open(name, CREATE_FLAGS, 0o600, dir_fd=parent)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
