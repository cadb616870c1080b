"""An arrival: files written, verified and flushed below ``incoming/<id>/``.

An ingest is settled exactly once, by `publish.publish`, by `park` or by `abort`;
leaving its context without either of the first two aborts it.  One thread at a
time uses it, but for its parts, see `store.part`; nothing settles it while a
``receive_*`` or a part's method still runs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from weightd.errors import DigestMismatch, InvalidRequest, IoError
from weightd.model import FileEntry, GenerationId, Key, file_path_fault
from weightd.store import adoption, arrival, layout, lending, takeover
from weightd.store.adoption import Adoption, Offered
from weightd.store.announced import Announced
from weightd.store.archive import TarReader
from weightd.store.arrival import Parked
from weightd.store.content import Content
from weightd.store.faults import NoSpace, from_os, reading, reported
from weightd.store.layout import Doomed
from weightd.store.link import Linker
from weightd.store.manifest_file import Stamp
from weightd.store.names import Names
from weightd.store.pages import Awaited, unawaited
from weightd.store.part import Part
from weightd.store.pour import Pour
from weightd.store.root import Root
from weightd.store.source import Claim, Source, Wrote, untold
from weightd.store.unlink import remove_small

_path = attrgetter("path")

ABORT_AT_ONCE_BYTES: Final = 64 << 20
"""What an abort unlinks by itself; more is left in ``doomed/`` for the background."""


_PLANTED: Final = frozenset(
    {errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENXIO}
)
"""What the kernel says when a name of ours stands for something that weightd never made there."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file on stable storage, as it was recorded and as it stands."""

    entry: FileEntry
    stamp: Stamp


class Ingest:
    """One arrival of one key.  Made by `Store.begin`, on disk from `make` on."""

    def __init__(self, root: Root, key: Key, resume: Parked | None = None) -> None:
        """With ``resume`` it goes on with what was parked."""
        self.id = layout.new_id() if resume is None else resume.id
        self.key = key
        self.written: dict[str, Written] = {}
        self.remains: Doomed | None = None
        """After an abort: what still waits to be unlinked, and counts until then."""
        self._root = root
        self._names = Names()
        self._parts: list[Part] = []
        self._linker = Linker(root)
        self._unlinked: set[str] = set()
        """Names that were taken for a link which could not be made."""
        self._noted = resume is not None
        self._resumed = resume
        self._lent: int | None = None
        """How many files another user was let make."""
        self._settled = False
        self._pour = Pour(root)
        self._content: Content | None = None
        self.adoption: Adoption | None = None
        """What was taken of a user's files, which are his until this is published."""

    def make(self) -> None:
        """Make ``incoming/<id>/<last segment>``, or take over what was parked.

        Raises NoSpace, IoError; the ingest is then to be aborted, like one that
        fails later, unless it was parked: that is settled, and as it was.
        """
        found = self._resumed is not None
        if not found:
            with reported(f"mkdir in {layout.INCOMING}"):
                os.mkdir(self.id, 0o755, dir_fd=self._root.incoming)
        try:
            with reported(f"mkdir in {layout.INCOMING}/{self.id}"):
                name = self.key.last_segment
                self._content = Content(self._root, self.id, name, found=found)
        except (IoError, NoSpace):
            if found:
                self.settle()
            raise
        if self._resumed is not None:
            self._content.counted(self._resumed.bytes)
        self._root.reach("ingest.begun")

    @property
    def content(self) -> int:
        """A descriptor of the directory that will be handed out."""
        return self._here().descriptor

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
        self._take(path)
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

    def part(
        self, path: str, bytes: int, *, claim: Claim, wrote: Wrote, awaited: Awaited = unawaited
    ) -> Part:
        """A file of so many bytes that arrives in pieces, or goes on where it was.

        Several may be written at once, each by several threads.  ``claim`` and
        ``wrote`` are told of what was not here when the ingest was resumed, and
        ``wrote`` of a negative size when something goes again.  What comes while it
        is not ``awaited`` leaves no pages in memory.  Raises InvalidRequest,
        NoSpace, IoError.
        """
        self._take(path)
        with self._found(f"open of {path}"):
            here, received = self._here(), self._received
            part = Part(
                here, path, bytes, claim=claim, wrote=wrote, received=received, awaited=awaited
            )
        self._parts.append(part)
        return part

    def link(
        self, entry: FileEntry, source: GenerationId, path: str, *, wrote: Wrote = untold
    ) -> FileEntry:
        """Have the file that ``source`` has at ``path`` under the name of ``entry`` too.

        What an earlier run left there goes, and ``wrote`` is told.  Raises
        FileNotFoundError when it is not there any more as it was published, or
        can have no further name: `part` may then have the file arrive.  Also
        raises InvalidRequest, NoSpace, IoError.
        """
        self._take(entry.path)
        with self._found(f"removal of {entry.path}"):
            if self._here().status(entry.path) is not None:
                self._here().remove(entry.path, wrote=wrote)
        try:
            stamp = self._linker.link(self._here(), entry, source, path)
        except FileNotFoundError:
            self._unlinked.add(entry.path)
            raise
        except OSError as error:
            raise from_os(f"link of {entry.path}", error) from error
        self._root.reach("ingest.linked")
        self._received(entry, stamp)
        return entry

    def announce(self, files: Sequence[Announced]) -> None:
        """Take the names of files that are to come.  Raises InvalidRequest."""
        for file in files:
            self._take(file.path)

    def open_to(self, uid: int, gid: int, files: Sequence[Announced]) -> Path:
        """Let a user write these files himself, and nothing else; where to.

        Raises Forbidden, NoSpace, IoError.
        """
        self._must_be_open()
        self._lent = len(files)
        with reported(f"opening of {layout.INCOMING}/{self.id}"):
            lending.open_to(self._root, self._here(), uid, gid, files)
        self._root.reach("ingest.opened")
        return self._root.path / layout.INCOMING / self.id / self.key.last_segment

    def measure(self) -> int:
        """The bytes of blocks that are on the disk by now, whoever wrote them.

        Raises InvalidRequest when they are hidden from us, or too many files; and IoError.
        """
        self._must_be_open()
        content = self._here()
        with reading(f"look at {layout.INCOMING}/{self.id}"):
            try:
                occupied = lending.occupied(content, self._root.block, self._lent or 0)
            except PermissionError:
                raise takeover.closed() from None
        content.counted(occupied - content.blocks)
        return occupied

    def look_at(self, files: Sequence[Offered], uid: int) -> None:
        """Raise what `adopt` would, as far as it can be told before there is room.

        InvalidRequest, InUse, IoError.
        """
        adoption.look(self._root, self.key, files, uid)

    def adopt(self, files: Sequence[Offered], uid: int) -> tuple[FileEntry, ...]:
        """Take the files of a user from where they are; an abort gives them back.

        Raises InvalidRequest, InUse, DigestMismatch, NoSpace or IoError.
        """
        self.adoption = Adoption(self._root, self._here(), self.key)
        self.adoption.take(files, uid)
        with adoption.verified(files):
            taken = self.take_over([one.known for one in files], trusted=True)
        adoption.must_match(files, taken)
        self.adoption.flush_homes()
        return taken

    def take_over(
        self, files: Sequence[Announced], *, trusted: bool, room: int = 0, wrote: Wrote = untold
    ) -> tuple[FileEntry, ...]:
        """Make what the user wrote ours, verified and on stable storage; see `takeover`.

        Raises InvalidRequest, InUse, CopyNeeded, DigestMismatch, NoSpace or
        IoError; he may go on then.
        """
        self._must_be_open()
        here, key = self._here(), self.key
        for entry, stamp in takeover.take_over(
            self._root, here, key, files, trusted=trusted, room=room, wrote=wrote
        ):
            self._received(entry, stamp)
        return tuple(sorted((written.entry for written in self.written.values()), key=_path))

    def remove(self, path: str, *, wrote: Wrote) -> None:
        """Take away what an earlier run left of a file, which is none of this ingest's yet.

        Raises IoError.
        """
        with self._found(f"unlink of {path}"):
            self._here().remove(path, wrote=wrote)

    def note(self, record: bytes) -> None:
        """Write down the caller's record in place of an earlier one.

        On stable storage when it returns.  From now on the arrival can be
        resumed, with what is here of its parts.  Raises NoSpace, IoError.
        """
        self._must_be_open()
        with self._found(f"note of {layout.INCOMING}/{self.id}"):
            self._here().note(self.key, record)
        self._noted = True
        self._root.reach("ingest.noted")

    def park(self) -> Parked:
        """Leave the arrival for later, all of it on stable storage.

        Raises NoSpace, IoError; it is then still to be aborted.
        """
        self._must_be_open()
        if not self._noted:
            raise RuntimeError(f"ingest {self.id} has no note to be found by")
        for part in self._parts:
            part.leave()
        with reported(f"parking of {layout.INCOMING}/{self.id}"):
            self._here().flush()
            parked = arrival.find(self._root, self.id)
        if parked is None:
            raise IoError(call=f"parking of {layout.INCOMING}/{self.id}", error="it is gone")
        self._root.reach("ingest.parked")
        self.settle()
        return parked

    def abort(self) -> Doomed | None:
        """Give the arrival up.  Idempotent; never raises for the disk.

        Answers what is left to `Store.unlink`, whose bytes still count, or None
        when everything is gone already.
        """
        if self._settled:
            return self.remains
        if self._lent is not None:
            self._look_once_more()
        returned = self.adoption is None or self.adoption.give_back()
        self.settle()
        if not returned:
            return None
        self.remains = self._give_up(0 if self._content is None else self._content.blocks)
        return self.remains

    def settle(self) -> None:
        """Let the descriptors go; the arrival is no longer this object's."""
        if not self._settled:
            self._settled = True
            for part in self._parts:
                part.close()
            self._pour.close()
            if self._content is not None:
                self._content.close()

    @property
    def noted(self) -> bool:
        """Whether it can be parked, with anything to go on from: else it is only to be aborted."""
        return self._noted and self._content is not None and self._content.blocks > 0

    @property
    def resumable(self) -> bool:
        """Whether anything stands beside its content that only an arrival needs."""
        taken = self._lent is not None or self.adoption is not None
        return self._noted or taken or bool(self._parts)

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

    @contextmanager
    def _found(self, call: str) -> Iterator[None]:
        """As `reported`; an arrival in which something was planted is not to be parked again."""
        with reported(call):
            try:
                yield
            except OSError as error:
                if error.errno in _PLANTED:
                    self._noted = False
                raise

    def _take(self, path: str) -> None:
        """Take a name, once.  Raises InvalidRequest."""
        self._must_be_open()
        if path in self._unlinked:
            self._unlinked.remove(path)
            return
        fault = file_path_fault(path) or self._names.add_file(path)
        if fault is not None:
            raise InvalidRequest(what=f"file {path!r}", reason=fault)

    def _here(self) -> Content:
        if self._content is None:
            raise RuntimeError(f"ingest {self.id} is not on disk")
        return self._content

    def _must_be_open(self) -> None:
        if self._settled:
            # Its descriptors may be another's by now.
            raise RuntimeError(f"ingest {self.id} is settled already")

    def _received(self, entry: FileEntry, stamp: Stamp) -> None:
        self.written[entry.path] = Written(entry, stamp)

    def _give_up(self, blocks: int) -> Doomed | None:
        doomed = Doomed(self.id, blocks)
        try:
            with reported(f"rename of {layout.INCOMING}/{self.id}"):
                self._move_away()
            if blocks <= ABORT_AT_ONCE_BYTES:
                left = remove_small(self._root, doomed)
                return Doomed(self.id, left) if left else None
        except (IoError, NoSpace):
            # Not lost: the caller's `Store.unlink` meets the fault again, and reports it.
            return doomed
        return doomed

    def _look_once_more(self) -> None:
        """Count what its writer brought since the last look, as far as the disk tells."""
        with suppress(IoError, InvalidRequest):
            self.measure()

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
        self._must_be_open()
        entry, stamp = self._pour.file(self._here(), path, source, claim, wrote, length)
        self._received(entry, stamp)
        return entry
