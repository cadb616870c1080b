"""An arrival: files written, verified and flushed below ``incoming/<id>/``.

An ingest is settled exactly once, by `publish.publish` or by `abort`; leaving
its context without a publication aborts it.  One thread at a time uses it, and
`abort` is not called while a ``receive_*`` still runs.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from weightd.errors import DigestMismatch, IncompleteBody, InvalidRequest, IoError
from weightd.model import FileEntry, Key, file_path_fault
from weightd.store import layout, tree
from weightd.store.allocate import Blocks
from weightd.store.archive import TarReader
from weightd.store.faults import NoSpace, reported
from weightd.store.layout import Doomed
from weightd.store.manifest_file import Stamp
from weightd.store.names import Names
from weightd.store.pace import WriteBack
from weightd.store.root import Root
from weightd.store.source import BUFFER_BYTES, Claim, Source, Wrote, fill, untold
from weightd.store.unlink import remove_small
from weightd.units import round_up

ABORT_AT_ONCE_BYTES: Final = 64 << 20
"""What an abort unlinks by itself; more is left in ``doomed/`` for the background."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file on stable storage, as it was recorded and as it stands."""

    entry: FileEntry
    stamp: Stamp


class Ingest:
    """One arrival of one key.  Made by `Store.begin`, on disk from `make` on."""

    def __init__(self, root: Root, key: Key) -> None:
        self.id = layout.new_id()
        self.key = key
        self.written: dict[str, Written] = {}
        self.remains: Doomed | None = None
        """After an abort: what still waits to be unlinked, and counts until then."""
        self._root = root
        self._names = Names()
        self._made: set[str] = set()
        self._blocks = 0
        self._settled = False
        self._buffer: memoryview | None = None
        self._content: int | None = None

    def make(self) -> None:
        """Make ``incoming/<id>/<last segment>``.

        Raises NoSpace, IoError; the ingest is then to be aborted, like one that fails later.
        """
        with reported(f"mkdir in {layout.INCOMING}"):
            os.mkdir(self.id, 0o755, dir_fd=self._root.incoming)
        with reported(f"mkdir in {layout.INCOMING}/{self.id}"):
            self._content = self._make_content()
        self._root.reach("ingest.begun")

    @property
    def content(self) -> int:
        """A descriptor of the directory that will be handed out."""
        if self._content is None:
            raise RuntimeError(f"ingest {self.id} is not on disk")
        return self._content

    def receive_file(
        self,
        path: str,
        source: Source,
        *,
        claim: Claim,
        length: int | None,
        sha256: str | None,
        wrote: Wrote = untold,
    ) -> FileEntry:
        """Write one file from all of ``source``.

        ``claim`` asks before blocks are taken, ``wrote`` tells of them once they are.
        ``length`` is what the source declared: fewer bytes raise
        IncompleteBody, more InvalidRequest.  A digest that differs from
        ``sha256`` raises DigestMismatch.  Also raises NoSpace, IoError, and
        what ``source`` and ``claim`` raise; the ingest is then to be aborted.
        """
        fault = file_path_fault(path) or self._names.add_file(path)
        if fault is not None:
            raise InvalidRequest(what=f"file {path!r}", reason=fault)
        entry = self._write(path, source, claim, wrote, length)
        if sha256 is not None and entry.sha256 != sha256:
            raise DigestMismatch(expected=sha256, actual=entry.sha256, file=path)
        return entry

    def receive_tar(
        self, source: Source, *, claim: Claim, wrote: Wrote = untold
    ) -> tuple[FileEntry, ...]:
        """Write the regular files of a tar stream, all of it or an error.

        Raises InvalidArchive beside what `receive_file` raises.
        """
        reader = TarReader(source)
        return tuple(
            self._write(member.path, reader, claim, wrote, member.size)
            for member in reader.members()
        )

    def abort(self) -> Doomed | None:
        """Give the arrival up.  Idempotent; never raises for the disk.

        Answers what is left to `Store.unlink`, whose bytes still count, or None
        when everything is gone already.
        """
        if self._settled:
            return self.remains
        self.settle()
        self.remains = self._give_up()
        return self.remains

    def settle(self) -> None:
        """Let the descriptor go; the arrival is no longer this object's."""
        if not self._settled:
            self._settled = True
            self._buffer = None
            if self._content is not None:
                os.close(self._content)

    @property
    def settled(self) -> bool:
        return self._settled

    def __enter__(self) -> Self:
        try:
            self.make()
        except (IoError, NoSpace):
            self.abort()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()

    # -- insides ---------------------------------------------------------------

    def _make_content(self) -> int:
        """Make the directory that will be handed out; a descriptor of it."""
        name = self.key.last_segment
        with tree.opened(self.id, self._root.incoming) as generation:
            os.mkdir(name, 0o755, dir_fd=generation)
            return os.open(name, tree.DIRECTORY_FLAGS, dir_fd=generation)

    def _give_up(self) -> Doomed | None:
        doomed = Doomed(self.id, self._blocks)
        try:
            with reported(f"rename of {layout.INCOMING}/{self.id}"):
                self._move_away()
            if self._blocks <= ABORT_AT_ONCE_BYTES:
                left = remove_small(self._root, doomed)
                return Doomed(self.id, left) if left else None
        except (IoError, NoSpace):
            # Not lost: the caller's `Store.unlink` meets the fault again, and reports it.
            return doomed
        return doomed

    def _move_away(self) -> None:
        try:
            os.rename(
                self.id, self.id, src_dir_fd=self._root.incoming, dst_dir_fd=self._root.doomed
            )
        except FileNotFoundError:
            return  # it was never made

    def _write(
        self, path: str, source: Source, claim: Claim, wrote: Wrote, length: int | None
    ) -> FileEntry:
        if self._settled:
            # Its descriptor may be another's by now.
            raise RuntimeError(f"ingest {self.id} is settled already")
        with reported(f"create of {path}"):
            descriptor = self._create(path)
        try:
            size, digest = self._pour(path, descriptor, source, claim, wrote, length)
            self._root.reach("ingest.file-written")
            with reported(f"fsync of {path}"):
                stamp = self._seal(descriptor)
        finally:
            os.close(descriptor)
        self._root.reach("ingest.file-flushed")
        entry = FileEntry(path, size, digest)
        self.written[path] = Written(entry, stamp)
        return entry

    def _create(self, path: str) -> int:
        """Create the file and the directories on its way; what somebody put there is an error."""
        self._make_directory(path.rpartition("/")[0])
        return tree.open_below(self.content, path, tree.CREATE_FLAGS)

    def _make_directory(self, path: str) -> None:
        if not path or path in self._made:
            return
        parent, _, name = path.rpartition("/")
        self._make_directory(parent)
        with tree.opened_below(self.content, parent) as directory:
            os.mkdir(name, 0o755, dir_fd=directory)
        self._made.add(path)

    def _pour(
        self,
        path: str,
        descriptor: int,
        source: Source,
        claim: Claim,
        wrote: Wrote,
        length: int | None,
    ) -> tuple[int, str]:
        """Write and hash what arrives; its length and sha256."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(BUFFER_BYTES))
        buffer = self._buffer
        if length:
            claim(round_up(length, self._root.block))
        blocks = Blocks(descriptor, self._root.block, length)
        digest, pace, size = hashlib.sha256(), WriteBack(descriptor), 0
        while count := fill(source, buffer if length is None else buffer[: length - size]):
            if length is None and (more := blocks.missing(size + count)):
                claim(more)
            with reported(f"write to {path}"):
                growth = blocks.cover(size + count)
                self._blocks += growth
                digest.update(buffer[:count])
                tree.write_all(descriptor, buffer[:count])
                size += count
                pace.reached(size)
            if growth:
                wrote(growth)
        if length is not None:
            self._check_length(source, buffer, size, length)
        return size, digest.hexdigest()

    def _check_length(self, source: Source, buffer: memoryview, size: int, length: int) -> None:
        if size < length:
            raise IncompleteBody(received=size, declared=length)
        if source.readinto(buffer[:1]):
            raise InvalidRequest(what="body", reason=f"it is longer than the {length} declared")

    def _seal(self, descriptor: int) -> Stamp:
        """Give the file its mode and group, bring it to stable storage; its stamp."""
        if self._root.group is not None:
            os.fchown(descriptor, -1, self._root.group)
        os.fchmod(descriptor, self._root.file_mode)
        os.fsync(descriptor)
        return Stamp.of(os.fstat(descriptor))
