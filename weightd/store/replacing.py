"""Replacing a small file elsewhere on the node, for whoever reads it there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from weightd.store import tree

_MODE: Final = 0o644


def replace_file(path: Path, data: bytes) -> None:
    """Have ``path`` hold ``data``; who reads meanwhile sees all of the old or all of the new.

    What is not finished stands beside it under a name that begins with a dot, which readers of
    such directories leave alone.  It is not flushed: what it says is true of this run of the
    daemon, which writes it anew.  Raises OSError.
    """
    unfinished = f".{path.name}.new"
    directory = os.open(path.parent, tree.DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    try:
        # What a killed daemon left, and never what somebody else made of the name.
        if tree.exists(unfinished, directory):
            os.unlink(unfinished, dir_fd=directory)
        descriptor = os.open(unfinished, tree.CREATE_FLAGS, 0o600, dir_fd=directory)
        try:
            tree.write_all(descriptor, data)
            os.fchmod(descriptor, _MODE)
        finally:
            os.close(descriptor)
        os.rename(unfinished, path.name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)
