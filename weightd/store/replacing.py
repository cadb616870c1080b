"""Replacing a small file elsewhere on the node, for whoever reads it there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from weightd.store import tree

_MODE: Final = 0o644


def replace_file(path: Path, data: bytes) -> None:
    """Have ``path`` hold ``data``; who reads meanwhile sees all of the old or all of the new.

    What is not finished stands beside it under a name that begins with a dot, which readers of
    such directories leave alone.  It is not flushed: what it says is true of this run of the
    daemon, which writes it anew.  What is there and is neither a file nor a link stays.
    Raises OSError.
    """
    unfinished = f".{path.name}.new"
    directory = os.open(path.parent, tree.DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    try:
        _must_be_replaceable(path.name, directory)
        # What a killed daemon left, and never what somebody else made of the name.
        if tree.exists(unfinished, directory):
            os.unlink(unfinished, dir_fd=directory)
        descriptor = os.open(unfinished, tree.CREATE_FLAGS, 0o600, dir_fd=directory)
        try:
            try:
                tree.write_all(descriptor, data)
                os.fchmod(descriptor, _MODE)
            finally:
                os.close(descriptor)
            os.rename(unfinished, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            # Half of it would only stand on a disk that is full.
            os.unlink(unfinished, dir_fd=directory)
            raise
    finally:
        os.close(directory)


def _must_be_replaceable(name: str, directory: int) -> None:
    """A rename would take the place of a device or a socket as well."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.EEXIST, "something is there that is not a file")
