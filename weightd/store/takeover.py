"""Files that somebody else wrote into an arrival, made ours: nobody writes to them any more.

A writer fills a directory that is his while he does.  When he says that it is
whole, everything in it is given to weightd's user, and only then is asked
whether somebody still has a file open, or mapped, for writing: a lease for
reading (``F_SETLEASE F_RDLCK``) is granted only while nobody has.  Who comes
later finds neither a name that he may open nor a directory that he may enter.
What is refused is given back as it was.  Root, and weightd's own user, could
still come in: what they change meanwhile is seen at the end, and refused.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from weightd.errors import DigestMismatch, InUse, InvalidRequest
from weightd.model import Digest, FileEntry, Key
from weightd.store import lease, pace, tree
from weightd.store.content import Content
from weightd.store.faults import printable, reported
from weightd.store.manifest_file import Stamp
from weightd.store.root import Root
from weightd.store.tree import Leaf

HASHERS: Final = 2
"""Files hashed at once; one alone is as fast as a core hashes."""

_WRITER_MODE: Final = 0o700
_PASSAGE_MODE: Final = 0o711
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Announced:
    """A file as its writer announced it, before he wrote it."""

    path: str
    bytes: int
    sha256: Digest | None = None


class _Taking:
    """Everything below a directory, made ours one after the other, or given back."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._before: list[tuple[str, os.stat_result]] = []

    def take(self, path: str, descriptor: int, mode: int) -> None:
        """Own what is open, with ``mode``.  Raises OSError."""
        now = os.fstat(descriptor)
        self._before.append((path, now))
        if now.st_uid != os.geteuid():
            os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, mode)

    def give_back(self) -> None:
        """Let all be as it was, what is deepest first.  Raises OSError."""
        for path, before in reversed(self._before):
            if stat.S_ISDIR(before.st_mode):
                with tree.opened_below(self._top, path) as directory:
                    _give(directory, before)
            elif (descriptor := tree.open_regular(self._top, path)) is not None:
                with _closing(descriptor):
                    _give(descriptor, before)


def _give(descriptor: int, before: os.stat_result) -> None:
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    if before.st_uid != os.geteuid():
        os.fchown(descriptor, before.st_uid, before.st_gid)


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_to(root: Root, content: Content, uid: int, gid: int, files: Sequence[Announced]) -> None:
    """Let a user write below an arrival's directory, and nobody else.  Raises OSError.

    The directories on the way of each file are there already.
    """
    ours = (uid, gid) == (os.geteuid(), os.getegid())
    if not ours:
        # To pass through, and not to list: what is there has names that nobody guesses.
        os.fchmod(root.incoming, _PASSAGE_MODE)
    for parent in {file.path.rpartition("/")[0] for file in files}:
        content.make_directory(parent)
    for path in ("", *content.directories):
        with tree.opened_below(content.descriptor, path) as directory:
            os.fchmod(directory, _WRITER_MODE)
            if not ours:
                os.fchown(directory, uid, gid)


def occupied(content: Content, block: int) -> int:
    """The bytes of blocks that are there by now, whoever wrote them.  Raises OSError."""
    found = {leaf.status.st_ino: leaf.status for leaf in tree.walk(content.descriptor)}
    return sum(tree.occupied(status, block) for status in found.values())


def take_over(
    root: Root, content: Content, key: Key, files: Sequence[Announced], trusted: bool
) -> list[tuple[FileEntry, Stamp]]:
    """Verify what was announced and make it ours, on stable storage.

    What is ``trusted`` is not read: it has the hashes that were announced.
    Raises InvalidRequest for what is missing, was not announced or has another
    length, InUse while somebody may still write, DigestMismatch, NoSpace and
    IoError.  All is as it was then.
    """
    announced = {file.path: file for file in files}
    top, taking = content.descriptor, _Taking(content.descriptor)
    with reported(f"taking over of {key}"):
        _compare(announced, list(tree.walk(top)))
        try:
            _take_directories(taking, top, "")
            for path in announced:
                with _file(top, path) as descriptor:
                    taking.take(path, descriptor, 0o400)
                    _must_be_still(key, path, descriptor)
            # Again, now that nobody comes in between: what is here is what was seen.
            _compare(announced, list(tree.walk(top)))
            return _sealed(root, top, files, trusted)
        except BaseException:
            taking.give_back()
            raise


def _compare(announced: dict[str, Announced], leaves: Sequence[Leaf]) -> None:
    """Raise InvalidRequest unless there is just what was announced."""
    for leaf in leaves:
        file = announced.get(leaf.path)
        if file is None:
            raise _wrong(leaf.path, "it was not announced; remove it, or announce it")
        if not stat.S_ISREG(leaf.status.st_mode):
            raise _wrong(leaf.path, "it is no plain file; a model has no links, pipes or devices")
        if leaf.status.st_nlink != 1:
            raise _wrong(leaf.path, "it has another name as well, by which it could be changed")
        if leaf.status.st_size != file.bytes:
            raise _wrong(leaf.path, f"it has {leaf.status.st_size} bytes, not {file.bytes}")
    found = {leaf.path for leaf in leaves}
    missing = next((file for file in announced.values() if file.path not in found), None)
    if missing is not None:
        raise _wrong(missing.path, "it was announced and is not there yet")


def _wrong(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(what=f"file {printable(path)}", reason=reason)


@contextmanager
def _file(top: int, path: str) -> Iterator[int]:
    """A plain file, open for reading."""
    descriptor = tree.open_regular(top, path)
    if descriptor is None:
        raise _wrong(path, "it is not there any more")
    with _closing(descriptor):
        yield descriptor


def _take_directories(taking: _Taking, directory: int, path: str) -> None:
    """From the top down: who has not entered yet finds the way closed."""
    taking.take(path, directory, _WRITER_MODE)
    with tree.listing(directory) as entries:
        below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in below:
        with tree.opened(name, directory) as child:
            _take_directories(taking, child, f"{path}/{name}".lstrip("/"))


def _must_be_still(key: Key, path: str, descriptor: int) -> None:
    """Raise InUse while anybody has the file open or mapped for writing."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            reason = f"a process still has {path} open for writing"
            raise InUse(key=str(key), reason=reason) from None
        if error.errno not in lease.UNABLE:
            raise
        # The kernel does not tell here; whether it changes is seen at the end.
        return
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _sealed(
    root: Root, top: int, files: Sequence[Announced], trusted: bool
) -> list[tuple[FileEntry, Stamp]]:
    """Hash and flush every file; the disk is at work on all before the first is hashed."""
    before = {}
    for file in files:
        with _file(top, file.path) as descriptor:
            before[file.path] = Stamp.of(os.fstat(descriptor))
            pace.begin(descriptor, file.bytes)

    def digest(file: Announced) -> Digest:
        if trusted and file.sha256 is not None:
            return file.sha256
        with _file(top, file.path) as descriptor:
            return _sha256(descriptor)

    with ThreadPoolExecutor(HASHERS, thread_name_prefix="weightd-hash") as hashers:
        digests = list(hashers.map(digest, files))
    return [
        _seal(root, top, file, actual, before[file.path])
        for file, actual in zip(files, digests, strict=True)
    ]


def _seal(
    root: Root, top: int, file: Announced, actual: Digest, before: Stamp
) -> tuple[FileEntry, Stamp]:
    if file.sha256 not in (None, actual):
        raise DigestMismatch(expected=file.sha256 or "", actual=actual, file=file.path)
    with _file(top, file.path) as descriptor:
        if root.group is not None:
            os.fchown(descriptor, -1, root.group)
        os.fchmod(descriptor, root.file_mode)
        os.fsync(descriptor)
        stamp = Stamp.of(os.fstat(descriptor))
    if stamp != before:
        raise _wrong(file.path, "it was changed while it was read")
    return FileEntry(file.path, file.bytes, actual), stamp


def _sha256(descriptor: int) -> Digest:
    digest, buffer, at = hashlib.sha256(), memoryview(bytearray(_BUFFER_BYTES)), 0
    while count := os.preadv(descriptor, [buffer], at):
        digest.update(buffer[:count])
        at += count
    return digest.hexdigest()
