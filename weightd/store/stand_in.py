"""A copy of ours that takes the place of a file which cannot be made ours.

The directory is closed to everybody else by then.  Blocks are shared where the
filesystem can; else the file is read once, and hashed while it is copied.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

from weightd.errors import InvalidRequest
from weightd.model import Digest
from weightd.store import layout, tree
from weightd.store.allocate import Blocks
from weightd.store.content import Content
from weightd.store.copying import NotCopied, copy_all, share
from weightd.store.faults import printable
from weightd.store.pace import WriteBack
from weightd.store.root import Root
from weightd.store.source import BUFFER_BYTES, Wrote

STEP_BYTES: Final = 16 << 20
"""So much is copied by the kernel before it is told."""


def put(
    root: Root, content: Content, path: str, source: int, wrote: Wrote, *, hashed: bool
) -> Digest | None:
    """Replace the file at ``path``, open as ``source``; its sha256 if it is to be ``hashed``.

    ``wrote`` is told of the copy's blocks as they come, and by a negative size
    when those of the file have gone.  Raises InvalidRequest when it is written
    to meanwhile, and OSError; the file is as it was then.
    """
    parent, _, name = path.rpartition("/")
    before, own = os.fstat(source), layout.new_id()
    with tree.opened_below(content.descriptor, parent) as directory:
        copy = _Copy(root, content, os.open(own, tree.CREATE_FLAGS, 0o600, dir_fd=directory), wrote)
        try:
            digest = copy.all_of(source, before.st_size, hashed=hashed)
            if _changed(before, os.fstat(source)):
                reason = "it was written to while it was copied; commit again when it is whole"
                raise InvalidRequest(what=f"file {printable(path)}", reason=reason)
            os.rename(own, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(own, dir_fd=directory)
            copy.tell(-copy.told)
            raise
        finally:
            os.close(copy.descriptor)
    copy.tell(-tree.occupied(before, root.block))
    return digest


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)


class _Copy:
    def __init__(self, root: Root, content: Content, descriptor: int, wrote: Wrote) -> None:
        self._root = root
        self._content = content
        self._wrote = wrote
        self.descriptor = descriptor
        self.told = 0

    def tell(self, size: int) -> None:
        if size:
            self.told += size
            self._content.counted(size)
            self._wrote(size)

    def all_of(self, source: int, size: int, *, hashed: bool) -> Digest | None:
        """Copy ``size`` bytes, or what there is of them."""
        if self._shared(source):
            self.tell(tree.occupied(os.fstat(self.descriptor), self._root.block))
            return sha256_of(self._root, self.descriptor) if hashed else None
        if not hashed:
            try:
                self._copied(source, size)
            except NotCopied:
                # What came so far is written once more.
                os.ftruncate(self.descriptor, 0)
                self.tell(-self.told)
            else:
                return None
        return self._poured(source, size)

    def _shared(self, source: int) -> bool:
        """Have the same blocks; False where there is no such thing."""
        try:
            share(source, self.descriptor)
        except NotCopied:
            return False
        return True

    def _copied(self, source: int, size: int) -> None:
        blocks, pace = Blocks(self.descriptor, self._root.block, size), WriteBack(self.descriptor)
        for at in range(0, size, STEP_BYTES):
            self._root.must_go_on()
            count = min(STEP_BYTES, size - at)
            self.tell(blocks.cover(at + count))
            copy_all(source, at, self.descriptor, at, count)
            pace.reached(at + count)

    def _poured(self, source: int, size: int) -> Digest:
        blocks, pace = Blocks(self.descriptor, self._root.block, size), WriteBack(self.descriptor)
        digest, buffer, at = hashlib.sha256(), memoryview(bytearray(BUFFER_BYTES)), 0
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        while count := os.preadv(source, [buffer[: size - at]], at):
            self._root.must_go_on()
            self.tell(blocks.cover(at + count))
            digest.update(buffer[:count])
            tree.write_all(self.descriptor, buffer[:count])
            at += count
            pace.reached(at)
        return digest.hexdigest()


def sha256_of(root: Root, descriptor: int) -> Digest:
    """The hash of all that is in an open file.  Raises OSError, and Draining once cut short."""
    digest, buffer, at = hashlib.sha256(), memoryview(bytearray(BUFFER_BYTES)), 0
    while count := os.preadv(descriptor, [buffer], at):
        root.must_go_on()
        digest.update(buffer[:count])
        at += count
    return digest.hexdigest()
