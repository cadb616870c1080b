"""One file of an arrival from the start of a stream to its end: written, hashed, flushed."""

from __future__ import annotations

import os

from weightd.errors import IncompleteBody, InvalidRequest
from weightd.model import FileEntry
from weightd.store import pages, tree
from weightd.store.allocate import Blocks
from weightd.store.content import Content
from weightd.store.faults import reported
from weightd.store.hasher import Hasher
from weightd.store.manifest_file import Stamp
from weightd.store.pace import WriteBack
from weightd.store.root import Root
from weightd.store.source import Claim, Source, Wrote, fill
from weightd.units import round_up


class Pour:
    """Takes files in, one after the other, through one ring of buffers."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._hasher = Hasher()

    def close(self) -> None:
        """Let the buffers go; call it when nothing is poured."""
        self._hasher.close()
        self._hasher = Hasher()

    def file(
        self,
        content: Content,
        path: str,
        source: Source,
        claim: Claim,
        wrote: Wrote,
        length: int | None,
    ) -> tuple[FileEntry, Stamp]:
        """Write a file, as `Ingest.receive_file` says; it is on stable storage then."""
        with reported(f"create of {path}"):
            descriptor = content.create(path)
        try:
            size, digest = self._pour(content, path, descriptor, source, claim, wrote, length)
            self._root.reach("ingest.file-written")
            with reported(f"fsync of {path}"):
                stamp = self._seal(descriptor)
        finally:
            os.close(descriptor)
        self._root.reach("ingest.file-flushed")
        return FileEntry(path, size, digest), stamp

    def _pour(
        self,
        content: Content,
        path: str,
        descriptor: int,
        source: Source,
        claim: Claim,
        wrote: Wrote,
        length: int | None,
    ) -> tuple[int, str]:
        """Write and hash what arrives; its length and sha256."""
        if length:
            claim(round_up(length, self._root.block))
        blocks = Blocks(descriptor, self._root.block, length)
        size = 0
        # It is hashed from the buffers: nobody reads it here, and nobody waits to map it.
        pace = WriteBack(descriptor, lambda: size)
        while True:
            buffer = self._hasher.buffer()
            count = fill(source, buffer if length is None else buffer[: length - size])
            self._hasher.update(buffer, count)
            if not count:
                break
            if length is None and (more := blocks.missing(size + count)):
                claim(more)
            with reported(f"write to {path}"):
                growth = blocks.cover(size + count)
                content.counted(growth)
                tree.write_all(descriptor, buffer[:count])
                size += count
                pace.reached(size)
            if growth:
                wrote(growth)
        if length is not None:
            _check_length(source, size, length)
        return size, self._hasher.hexdigest()

    def _seal(self, descriptor: int) -> Stamp:
        """Give the file its mode and group, bring it to stable storage; its stamp."""
        if self._root.group is not None:
            os.fchown(descriptor, -1, self._root.group)
        os.fchmod(descriptor, self._root.file_mode)
        os.fsync(descriptor)
        pages.forget(descriptor)
        return Stamp.of(os.fstat(descriptor))


def _check_length(source: Source, size: int, length: int) -> None:
    if size < length:
        raise IncompleteBody(received=size, declared=length)
    if source.readinto(memoryview(bytearray(1))):
        raise InvalidRequest(what="body", reason=f"it is longer than the {length} declared")
