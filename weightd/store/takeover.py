"""Files that somebody else wrote into an arrival, made ours: nobody writes to them any more.

A writer fills a directory that is open to him while he does.  When he says that
it is whole, everything in it is made ours and closed to him, and only then is
asked whether somebody still has a file open, or mapped, for writing: a lease
for reading (``F_SETLEASE F_RDLCK``) is granted only while nobody has.  Who
comes later finds neither a name that he may open nor a directory that he may
enter.  A file that cannot be made ours, since he made it himself and we are not
root, is replaced by a copy that is: whoever still writes to his own changes
nothing that is published.  What is refused is given back as it was.  Root, and
weightd's own user, could still come in: what they change meanwhile is seen at
the end, and refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Final

from weightd.errors import DigestMismatch, InUse, InvalidRequest
from weightd.model import Digest, FileEntry, Key
from weightd.store import lease, ownership, pace, pages, stand_in, tree
from weightd.store.allocate import exactly
from weightd.store.announced import Announced
from weightd.store.content import Content
from weightd.store.faults import printable, reported
from weightd.store.manifest_file import Stamp
from weightd.store.ownership import Before
from weightd.store.root import Root
from weightd.store.source import Wrote, untold
from weightd.store.tree import Leaf
from weightd.units import round_up

HASHERS: Final = 2
"""Files hashed at once; one alone is as fast as a core hashes."""

_WRITER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class CopyNeeded(Exception):
    """Files that cannot be made ours are to be copied; ``bytes`` of room are needed for that.

    Nothing has changed.
    """

    def __init__(self, bytes: int) -> None:
        super().__init__(f"{bytes} bytes are needed to copy what cannot be taken over")
        self.bytes = bytes


class _Taking:
    """Everything below a directory, made ours one after the other, or given back."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._before: list[tuple[str, Before]] = []
        self._replaced: list[tuple[str, int]] = []

    def take(self, path: str, descriptor: int, mode: int) -> bool:
        """Own what is open, with ``mode``; False where we may not.  Raises OSError."""
        was = ownership.before(descriptor)
        if was.status.st_uid != os.geteuid() and not _may_own(descriptor):
            return False
        self._before.append((path, was))
        ownership.own(descriptor, mode)
        return True

    def replaced(self, path: str, uid: int) -> None:
        """Note that a copy of ours stands in the place of a user's file."""
        self._replaced.append((path, uid))

    def give_back(self) -> None:
        """Let all be as it was, what is deepest first.  Raises OSError."""
        for path, uid in self._replaced:
            with _file(self._top, path) as copy:
                ownership.let_in(copy, uid)
        for path, was in reversed(self._before):
            if stat.S_ISDIR(was.status.st_mode):
                with tree.opened_below(self._top, path) as directory:
                    ownership.give_back(directory, was)
            elif (descriptor := tree.open_regular(self._top, path)) is not None:
                with _closing(descriptor):
                    ownership.give_back(descriptor, was)


def _may_own(descriptor: int) -> bool:
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
    except PermissionError:
        return False
    return True


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_over(
    root: Root,
    content: Content,
    key: Key,
    files: Sequence[Announced],
    *,
    trusted: bool,
    room: int = 0,
    wrote: Wrote = untold,
) -> list[tuple[FileEntry, Stamp]]:
    """Verify what was announced and make it ours, on stable storage.

    What is ``trusted`` is not read: it has the hashes that were announced.  What is
    read leaves no pages in memory, since nobody waits for it.
    There is ``room`` for copies, and ``wrote`` is told of them: of blocks that
    came, and by a negative size of those that went.  Raises InvalidRequest for what
    is missing, was not announced, has another length or may not be read, InUse
    while somebody may still write, CopyNeeded, DigestMismatch, NoSpace and
    IoError.  All is as it was then.
    """
    announced = {file.path: file for file in files}
    top, taking = content.descriptor, _Taking(content.descriptor)
    with reported(f"taking over of {key}"):
        _compare(announced, top)
        try:
            _take_directories(taking, top, "", _above(announced))
            his = [file for file in files if not _taken(taking, top, key, file.path)]
            # Again, now that nobody comes in between: what is here is what was seen.
            _compare(announced, top)
            root.reach("ingest.taken-over")
            needed = max((round_up(file.bytes, root.block) for file in his), default=0)
            if needed > room:
                raise CopyNeeded(needed)
            copied = {}
            for file in his:
                hashed = not (trusted and file.sha256)
                with _file(top, file.path) as source:
                    uid = os.fstat(source).st_uid
                    digest = stand_in.put(root, content, file.path, source, wrote, hashed=hashed)
                copied[file.path] = digest or file.sha256
                taking.replaced(file.path, uid)
                root.reach("ingest.copied")
            return _sealed(root, top, files, copied, trusted)
        except BaseException:
            taking.give_back()
            raise


def _leaves(top: int) -> Generator[Leaf, None, None]:
    """All that is there but directories.  Raises InvalidRequest for one that is closed to us."""
    try:
        yield from tree.walk(top)
    except PermissionError:
        raise closed() from None


def closed() -> InvalidRequest:
    """The refusal of a directory that its maker keeps weightd out of."""
    reason = (
        f"a directory in it is closed to user {os.geteuid()}, whom weightd runs as; "
        "remove it, or let him in by chmod"
    )
    return InvalidRequest(what="upload", reason=reason)


def _compare(announced: dict[str, Announced], top: int) -> None:
    """Raise InvalidRequest unless there is just what was announced."""
    # Closed also when it is left early, and with it the directories that it is in.
    with closing(_leaves(top)) as leaves:
        found = {_as_announced(announced, leaf) for leaf in leaves}
    missing = next((file for file in announced.values() if file.path not in found), None)
    if missing is not None:
        raise _wrong(missing.path, "it was announced and is not there yet")


def _as_announced(announced: dict[str, Announced], leaf: Leaf) -> str:
    file = announced.get(leaf.path)
    if file is None:
        raise _wrong(leaf.path, "it was not announced; remove it, or announce it")
    if not stat.S_ISREG(leaf.status.st_mode):
        raise _wrong(leaf.path, "it is no plain file; a model has no links, pipes or devices")
    _must_be_alone(leaf.path, leaf.status)
    if leaf.status.st_size != file.bytes:
        raise _wrong(leaf.path, f"it has {leaf.status.st_size} bytes, not {file.bytes}")
    return leaf.path


def _must_be_alone(path: str, status: os.stat_result) -> None:
    if status.st_nlink != 1:
        raise _wrong(path, "it has another name as well, by which it could be changed")


def _wrong(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(what=f"file {printable(path)}", reason=reason)


@contextmanager
def _file(top: int, path: str) -> Iterator[int]:
    """A plain file, open for reading."""
    try:
        descriptor = tree.open_regular(top, path)
    except PermissionError:
        reason = f"user {os.geteuid()}, whom weightd runs as, may not read it; chmod a+r does"
        raise _wrong(path, reason) from None
    except BlockingIOError:
        raise _wrong(path, "a process has a lease on it, and lets nobody read it") from None
    if descriptor is None:
        raise _wrong(path, "it is not there any more")
    with _closing(descriptor):
        yield descriptor


def _above(paths: Iterable[str]) -> set[str]:
    """The directories that files are in."""
    return {
        "/".join(parts[:depth])
        for parts in (path.split("/") for path in paths)
        for depth in range(1, len(parts))
    }


def _take_directories(taking: _Taking, directory: int, path: str, announced: set[str]) -> None:
    """From the top down: who has not entered yet finds the way closed."""
    if not taking.take(path, directory, _WRITER_MODE):
        what = f"directory {printable(path)}"
        reason = (
            "its maker could change what is in it; weightd made those that were announced, "
            "so move what is in this one there, and remove it"
        )
        raise InvalidRequest(what=what, reason=reason)
    with tree.listing(directory) as entries:
        below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in below:
        inner = f"{path}/{name}".lstrip("/")
        if inner not in announced:
            reason = "no file that was announced is in it; remove it"
            raise InvalidRequest(what=f"directory {printable(inner)}", reason=reason)
        with tree.opened(name, directory) as child:
            _take_directories(taking, child, inner, announced)


def _taken(taking: _Taking, top: int, key: Key, path: str) -> bool:
    """Make a file ours; False where we may not.  Raises InUse, InvalidRequest."""
    with _file(top, path) as descriptor:
        # Before anything of it is changed: it may be a name of what is none of his.
        _must_be_alone(path, os.fstat(descriptor))
        if not taking.take(path, descriptor, _FILE_MODE):
            return False
        _must_be_still(key, path, descriptor)
    return True


def _must_be_still(key: Key, path: str, descriptor: int) -> None:
    """Raise InUse while anybody has the file open or mapped for writing.

    Where the kernel does not tell, whether it changes is seen at the end.
    """
    if not lease.nobody_writes(descriptor):
        reason = f"a process still has {printable(path)} open for writing"
        raise InUse(key=str(key), reason=reason)


def _sealed(
    root: Root,
    top: int,
    files: Sequence[Announced],
    copied: dict[str, Digest | None],
    trusted: bool,
) -> list[tuple[FileEntry, Stamp]]:
    """Hash and flush every file; the disk is at work on all before the first is hashed."""
    before = {}
    for file in files:
        with _closing(tree.open_below(top, file.path, tree.REWRITE_FLAGS)) as descriptor:
            exactly(descriptor, file.bytes, root.block)
            before[file.path] = Stamp.of(os.fstat(descriptor))
            pace.begin(descriptor, file.bytes)

    untouched = {file.path for file in files if trusted and file.sha256} - copied.keys()

    def digest(file: Announced) -> Digest:
        known = copied.get(file.path) or (file.sha256 if trusted else None)
        if known is not None:
            return known
        with _file(top, file.path) as descriptor:
            return stand_in.sha256_of(root, descriptor)

    with ThreadPoolExecutor(HASHERS, thread_name_prefix="weightd-hash") as hashers:
        digests = list(hashers.map(digest, files))
    for file, actual in zip(files, digests, strict=True):
        _settle(root, top, file, actual)
    # Not one by one: the first flush of a journal takes the modes of all with it.
    sealed = [
        _seal(top, file, actual, before[file.path], forget=file.path not in untouched)
        for file, actual in zip(files, digests, strict=True)
    ]
    root.reach("ingest.sealed")
    return sealed


def _settle(root: Root, top: int, file: Announced, actual: Digest) -> None:
    """Give a file that is what was announced the mode and the group of a model's."""
    if file.sha256 not in (None, actual):
        raise DigestMismatch(expected=file.sha256 or "", actual=actual, file=file.path)
    with _file(top, file.path) as descriptor:
        if root.group is not None:
            os.fchown(descriptor, -1, root.group)
        os.fchmod(descriptor, root.file_mode)


def _seal(
    top: int, file: Announced, actual: Digest, before: Stamp, *, forget: bool
) -> tuple[FileEntry, Stamp]:
    with _file(top, file.path) as descriptor:
        os.fsync(descriptor)
        stamp = Stamp.of(os.fstat(descriptor))
        if forget:
            pages.forget(descriptor)
    if stamp != before:
        raise _wrong(file.path, "it was changed while it was read")
    return FileEntry(file.path, file.bytes, actual), stamp
