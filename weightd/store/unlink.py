"""Freeing what is in ``doomed/``, resumable at any instant.

A file that is the last name of its inode goes only while a write lease says
that nobody has it open; otherwise it stays, and its bytes are answered as left.
A large one is first given a name nobody knows, then truncated down in slices,
because one unlink of a large file keeps some filesystems busy for seconds.
A file with another name is never truncated, and frees nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final, TypeAlias

from weightd.store import layout, lease, ownership, progress, tree
from weightd.store.arrival import Parked
from weightd.store.faults import reported
from weightd.store.layout import Doomed
from weightd.store.root import Root
from weightd.units import round_up

SLICE: Final = 64 << 20
"""Bytes given back per call, a multiple of any filesystem's block."""

Freed: TypeAlias = Callable[[int], None]


def unlink(root: Root, doomed: Doomed, freed: Freed) -> int:
    """Unlink what ``doomed`` names; the bytes left because somebody has them open.

    ``freed`` is called with the bytes of blocks that went, as they go; what it
    raises ends the unlinking, which can be resumed.  With 0 left the directory
    is gone too.  Raises IoError, NoSpace; then, and with something left, call again later.
    """
    if doomed.vanished:
        return 0
    with reported(f"unlink of {layout.DOOMED}/{doomed.id}"):
        _bring(root, doomed.id)
        try:
            with tree.opened(doomed.id, root.doomed) as top:
                left = _Remover(root, top, freed).all()
        except FileNotFoundError:
            return 0
        if left == 0:
            os.rmdir(doomed.id, dir_fd=root.doomed)
    if left == 0:
        root.reach("unlink.directory-removed")
    return left


def drop(root: Root, parked: Parked) -> Doomed:
    """Move a parked arrival out of reach.  Raises NoSpace, IoError."""
    with reported(f"rename of {layout.INCOMING}/{parked.id}"):
        try:
            os.rename(parked.id, parked.id, src_dir_fd=root.incoming, dst_dir_fd=root.doomed)
        except FileNotFoundError:
            return Doomed(parked.id, 0, vanished=True)
    return Doomed(parked.id, parked.bytes)


def remove_small(root: Root, doomed: Doomed) -> int:
    """Unlink an aborted arrival whose bytes nobody counts any more; the bytes left."""
    return unlink(root, doomed, lambda _: None)


def _bring(root: Root, name: str) -> None:
    """An aborted arrival that could not be moved at once is moved now."""
    try:
        os.rename(name, name, src_dir_fd=root.incoming, dst_dir_fd=root.doomed)
    except FileNotFoundError:
        return


def _own(directory: int) -> None:
    """Be able to unlink what is in it, and nobody else to add to it.  Raises OSError."""
    try:
        # What is handed out is 0555, from which only root may unlink.
        ownership.own(directory, 0o700)
    except PermissionError:
        # It was made by a user whom we let in: what he lets us do will do.
        return


class _Remover:
    """Empties one doomed directory."""

    def __init__(self, root: Root, top: int, freed: Freed) -> None:
        self._root = root
        self._top = top
        self._freed = freed
        # What arrived in pieces may have holes.
        self._holes = tree.exists(progress.NAME, top)
        self._brought_up = False

    def all(self) -> int:
        """Remove everything; the bytes left."""
        while True:
            self._brought_up = False
            left = self.empty(self._top)
            if not self._brought_up:
                return left

    def empty(self, directory: int, depth: int = tree.DEPTH_MAX) -> int:
        """Remove everything below ``directory``; the bytes left."""
        _own(directory)
        left = 0
        with os.scandir(directory) as entries:
            listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        # Ours last: while there are files with holes, that shows.
        for name, is_directory in sorted(listed, key=lambda one: one[0].startswith(".")):
            if is_directory:
                left += self._directory(name, directory, depth)
            else:
                left += self._leaf(name, directory)
        return left

    def _directory(self, name: str, parent: int, depth: int) -> int:
        if depth == 0:
            # However deep somebody went, no more directories than so many are open at once.
            return self._bring_up(name, parent)
        try:
            with tree.opened(name, parent) as directory:
                left = self.empty(directory, depth - 1)
            if left == 0:
                os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return 0
        except PermissionError as closed:
            # Its maker keeps us out; that matters only while there is something in it.
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:
                raise closed from None
            return 0
        return left

    def _bring_up(self, name: str, parent: int) -> int:
        """Have a directory at the top, to be removed once the rest is."""
        with tree.opened(name, parent) as directory:
            # To be moved it has to be ours to write to.
            _own(directory)
        os.rename(name, layout.new_id(), src_dir_fd=parent, dst_dir_fd=self._top)
        self._brought_up = True
        return 0

    def _leaf(self, name: str, parent: int) -> int:
        try:
            return self._remove(name, parent)
        except FileNotFoundError:
            return 0

    def _remove(self, name: str, parent: int) -> int:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        lone = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if parent == self._top and not layout.is_id(name):
            # The manifest and the mark of retirement are overhead, charged to no model.
            # Ours stay to the end.
            if not self._brought_up:
                os.unlink(name, dir_fd=parent)
            return 0
        blocks = self._blocks(status)
        if lone and self._root.leases_work:
            try:
                return self._lone(name, parent, blocks, large=status.st_size > SLICE)
            except OSError as error:
                if error.errno not in lease.UNABLE:
                    raise
        # Safe for any reader; what one still has open, the kernel frees when it is closed.
        os.unlink(name, dir_fd=parent)
        self._gone(blocks if lone else 0)
        return 0

    def _lone(self, name: str, parent: int, blocks: int, *, large: bool) -> int:
        """Remove a last name under a lease; the bytes left when it is refused."""
        try:
            descriptor = self._open(name, parent, large=large)
        except BlockingIOError:
            # Somebody else holds a lease on it, so has it open.
            return blocks
        try:
            if not lease.take(descriptor):
                return blocks
            if large:
                return self._slices(name, parent, descriptor, blocks)
            os.unlink(name, dir_fd=parent)
        finally:
            os.close(descriptor)
        self._gone(blocks)
        return 0

    def _open(self, name: str, parent: int, *, large: bool) -> int:
        descriptor = os.open(name, tree.READ_FLAGS, dir_fd=parent)
        if not large:
            return descriptor
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        return os.open(name, tree.REWRITE_FLAGS, dir_fd=parent)

    def _slices(self, name: str, parent: int, descriptor: int, blocks: int) -> int:
        """Truncate down, then unlink.

        Under its new name nobody can come to wait on the lease, and whoever had
        begun to before, or made another name, is seen here: truncation is safe.
        """
        hidden = layout.new_id()
        os.rename(name, hidden, src_dir_fd=parent, dst_dir_fd=self._top)
        if not lease.unbroken(descriptor) or os.fstat(descriptor).st_nlink != 1:
            return blocks
        size = os.fstat(descriptor).st_size
        while size > SLICE:
            size = (size - 1) // SLICE * SLICE
            os.ftruncate(descriptor, size)
            left = self._blocks(os.fstat(descriptor))
            if left < blocks:
                self._freed(blocks - left)
                blocks = left
        os.unlink(hidden, dir_fd=self._top)
        self._gone(blocks)
        return 0

    def _blocks(self, status: os.stat_result) -> int:
        if self._holes:
            return tree.occupied(status, self._root.block)
        return round_up(status.st_size, self._root.block)

    def _gone(self, count: int) -> None:
        if count:
            self._freed(count)
        self._root.reach("unlink.file-removed")
