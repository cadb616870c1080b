"""Files of a user's own, taken where they are: renamed into an arrival, or their blocks shared.

No byte moves, so nothing depends on the size.  What is renamed is its owner's
only copy: where each file came from is on stable storage before the first one
moves, and up to the one rename that publishes the model each goes back when
anything fails; after ``kill -9``, and after a loss of power, at the next start.
What cannot go back, since somebody took its place meanwhile, stays where it is
and is told of.  It is never unlinked.

The one who asks names places, and the daemon may reach more than he may: no
link is followed on the way, the file and its directory have to be his, and what
was looked at is what is taken.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, NoReturn

from weightd.errors import DigestMismatch, InUse, InvalidRequest
from weightd.model import FileEntry, Key
from weightd.store import copying, lease, ownership, restitution, tree
from weightd.store.announced import Announced
from weightd.store.content import Content
from weightd.store.faults import printable, reported
from weightd.store.restitution import Origin, flush_homes, home_of, refuse
from weightd.store.root import Root
from weightd.store.stand_in import STEP_BYTES
from weightd.store.takeover import CopyNeeded

_PIECE_BYTES: Final = 1 << 20

_UNMOVED: Final = frozenset({errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS})
"""What it says of a file that cannot be renamed, by whoever asks or by this user."""

_NAMELESS: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
"""What it says where there are no files without a name."""

_COPY: Final = "`weightd put` copies it"


@dataclass(frozen=True, slots=True)
class Offered:
    """A file that is somewhere on the disk already, at the absolute path ``place``.

    With ``keep`` it stays there, and only its blocks are shared.  With ``copy`` it
    is copied where that cannot be.  With ``trusted`` it has the hash that is
    announced, and is not read.
    """

    file: Announced
    place: str
    keep: bool = False
    copy: bool = False
    trusted: bool = False

    @property
    def known(self) -> Announced:
        """The same, with a hash only where that is trusted."""
        return self.file if self.trusted else replace(self.file, sha256=None)


class _Source(NamedTuple):
    """A file as it was when it was looked at; ``stays`` is why it cannot be renamed, or None."""

    offered: Offered
    status: os.stat_result
    home_uid: int
    stays: str | None
    lists: tuple[tuple[str, str], ...] = ()


def look(root: Root, key: Key, files: Sequence[Offered], uid: int) -> None:
    """Raise what `Adoption.take` would, as far as that can be told before room is made.

    InvalidRequest, InUse, IoError: a refusal is to cost nobody anything.
    """
    with reported(f"look at what is to be adopted of {key}"):
        for source in _sources(root, files, uid):
            elsewhere = source.status.st_dev != os.fstat(root.directory).st_dev
            stays = source.stays or ("it is on another filesystem" if elsewhere else None)
            with _opened(root, key, source) as original:
                if stays is not None and not source.offered.copy:
                    _must_be_shareable(root, source.offered.place, stays, original)


class Adoption:
    """What one arrival took of its user's files."""

    def __init__(self, root: Root, content: Content, key: Key) -> None:
        self._root = root
        self._content = content
        self._key = key
        self._moved: list[_Source] = []
        self.stranded: tuple[str, ...] = ()
        """After `give_back`: the places of those that could not go back."""

    def take(self, files: Sequence[Offered], uid: int) -> None:
        """Have every file in the arrival, for a user who has to own it.

        Raises InvalidRequest for what cannot be taken and says why, InUse for what is
        being written, NoSpace and IoError; what was taken by then is to be given back.
        """
        with reported(f"adoption of {self._key}"):
            sources = _sources(self._root, files, uid)
            moving = [source for source in sources if source.stays is None]
            # First what leaves everything as it is, since it may be refused.
            for source in sources:
                if source.stays is not None:
                    self._share(source, source.stays)
            self._note(moving)
            self._root.reach("adopt.noted")
            self._moved = moving
            self._move_all(moving)

    def give_back(self) -> bool:
        """Put back what was renamed; whether all of it is where it was.  Never raises OSError."""
        self.stranded = restitution.give_back(self._root, self._content.generation)
        return not self.stranded

    def _note(self, moving: Sequence[_Source]) -> None:
        origins = [
            Origin(
                path=source.offered.file.path,
                place=source.offered.place,
                inode=source.status.st_ino,
                uid=source.status.st_uid,
                gid=source.status.st_gid,
                mode=stat.S_IMODE(source.status.st_mode),
                lists=source.lists,
                home_uid=source.home_uid,
            )
            for source in moving
        ]
        restitution.note(self._root, self._content.generation, self._key.last_segment, origins)

    def _move_all(self, moving: list[_Source]) -> None:
        """Rename each; of one that cannot be, which only trying tells, the blocks are shared."""
        for source in list(moving):
            stays = self._move(source)
            if stays is not None:
                # What the note names goes back, and a copy of ours is not to.
                moving.remove(source)
                self._note(moving)
                self._share(source, stays)
            self._root.reach("adopt.moved")

    def _move(self, source: _Source) -> str | None:
        """Rename one; why it stays where that cannot be.  Raises InvalidRequest, OSError."""
        path = source.offered.file.path
        parent, _, last = path.rpartition("/")
        self._content.make_directory(parent)
        with (
            home_of(self._root, source.offered.place) as (home, name),
            tree.opened_below(self._content.descriptor, parent) as directory,
        ):
            _must_be(source, os.stat(name, dir_fd=home, follow_symlinks=False))
            try:
                os.rename(name, last, src_dir_fd=home, dst_dir_fd=directory)
            except OSError as error:
                if error.errno not in _UNMOVED:
                    raise
                return f"weightd may not rename it here ({error.strerror})"
            # Whatever stood there at the last moment; it goes back if it is another.
            _must_be(source, os.stat(last, dir_fd=directory, follow_symlinks=False))
        return None

    def _share(self, source: _Source, stays: str) -> None:
        """Have a file's blocks in one of our own; ``stays`` is why it is not renamed."""
        offered = source.offered
        with _opened(self._root, self._key, source) as original:
            target = self._content.create(offered.file.path)
            try:
                copying.share(original, target)
            except copying.NotCopied as why:
                if not offered.copy:
                    _refuse_to_share(offered.place, stays, str(why))
                _copy(self._root, original, target, offered.file.bytes)
            finally:
                self._content.counted(tree.occupied(os.fstat(target), self._root.block))
                os.close(target)
            _must_be(source, os.fstat(original))

    def flush_homes(self) -> None:
        """Bring to stable storage that the files are gone from where they were.

        Once they are flushed themselves: the same write of a journal has both then.
        Raises InvalidRequest, NoSpace, IoError.
        """
        with reported(f"adoption of {self._key}"):
            flush_homes(self._root, [one.offered.place for one in self._moved])


def _copy(root: Root, original: int, target: int, size: int) -> None:
    try:
        for at in range(0, size, STEP_BYTES):
            root.must_go_on()
            copying.copy_all(original, at, target, at, min(STEP_BYTES, size - at))
    except copying.NotCopied:
        os.lseek(target, 0, os.SEEK_SET)
        for offset in range(0, size, _PIECE_BYTES):
            root.must_go_on()
            tree.write_all(target, os.pread(original, _PIECE_BYTES, offset))


@contextmanager
def verified(files: Sequence[Offered]) -> Iterator[None]:
    """Say of what cannot be made ours that it is to be copied."""
    try:
        yield
    except CopyNeeded:
        reason = f"weightd, which runs as user {os.geteuid()}, cannot make it its own; {_COPY}"
        raise InvalidRequest(what=f"file {printable(files[0].place)}", reason=reason) from None


def must_match(files: Sequence[Offered], taken: Sequence[FileEntry]) -> None:
    """Raise DigestMismatch for a file that was read and is another than was announced."""
    actual = {entry.path: entry.sha256 for entry in taken}
    for file in (one.file for one in files):
        if file.sha256 not in (None, actual[file.path]):
            expected = file.sha256 or ""
            raise DigestMismatch(expected=expected, actual=actual[file.path], file=file.path)


@contextmanager
def _opened(root: Root, key: Key, source: _Source) -> Iterator[int]:
    """A file that was looked at, open for reading while nobody has it open for writing.

    Raises InvalidRequest, InUse, OSError.
    """
    place = source.offered.place
    with home_of(root, place) as (home, name):
        try:
            original = os.open(name, tree.READ_FLAGS, dir_fd=home)
        except PermissionError:
            refuse(place, f"user {os.geteuid()}, whom weightd runs as, may not read it; {_COPY}")
    try:
        _must_be(source, os.fstat(original))
        if not lease.nobody_writes(original):
            reason = f"a process has {printable(place)} open for writing"
            raise InUse(key=str(key), reason=reason)
        yield original
    finally:
        os.close(original)


def _must_be_shareable(root: Root, place: str, stays: str, original: int) -> None:
    """Raise InvalidRequest where the blocks of a file that ``stays`` cannot be shared; OSError."""
    try:
        trial = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=root.incoming)
    except OSError as error:
        if error.errno not in _NAMELESS:
            raise
        # Only doing it tells.
        return
    try:
        copying.share(original, trial)
    except copying.NotCopied as why:
        _refuse_to_share(place, stays, str(why))
    finally:
        os.close(trial)


def _refuse_to_share(place: str, stays: str, why: str) -> NoReturn:
    refuse(place, f"it stays, since {stays}, and its blocks cannot be shared ({why}); {_COPY}")


def _sources(root: Root, files: Sequence[Offered], uid: int) -> list[_Source]:
    """See what is to be taken, file by file.  Raises InvalidRequest, OSError."""
    sources = [_look(root, one, uid) for one in files]
    moving: set[str] = set()
    for source in sources:
        place = source.offered.place
        if source.stays is None and place in moving:
            refuse(place, "it cannot be two files of one model; `keep` one of them, or put it")
        moving |= {place} if source.stays is None else set()
    return sources


def _look(root: Root, offered: Offered, uid: int) -> _Source:
    """See what is to be taken, and how it can be.  Raises InvalidRequest, OSError."""
    place = offered.place
    with home_of(root, place) as (home, name):
        try:
            status = os.stat(name, dir_fd=home, follow_symlinks=False)
        except FileNotFoundError:
            refuse(place, "it is not there, or not to be seen by weightd; is its disk mounted?")
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            refuse(place, "its name is longer than any on this filesystem")
        _must_be_adoptable(offered, status, uid)
        home_uid = os.fstat(home).st_uid
        stays = _why_it_stays(offered, status)
        if stays is None and uid not in (0, os.geteuid(), home_uid):
            stays = f"its directory belongs to user {home_uid}, not to {uid}"
        lists: tuple[tuple[str, str], ...] = ()
        if stays is None:
            try:
                lists = _lists(home, name)
            except PermissionError:
                stays = "weightd may not read it, or not its directory"
    return _Source(offered, status, home_uid, stays, lists)


def _must_be_adoptable(offered: Offered, status: os.stat_result, uid: int) -> None:
    """Raise InvalidRequest for what is no file of this user's and this length."""
    place = offered.place
    if stat.S_ISLNK(status.st_mode):
        refuse(place, f"it is a link; {_COPY}")
    if not stat.S_ISREG(status.st_mode):
        refuse(place, "it is no plain file; a model has no links, pipes or devices")
    if status.st_size != offered.file.bytes:
        refuse(place, f"it has {status.st_size} bytes, not {offered.file.bytes}")
    if uid not in (0, os.geteuid(), status.st_uid):
        refuse(place, f"it belongs to user {status.st_uid}, not to {uid}; ask as that user")


def _lists(home: int, name: str) -> tuple[tuple[str, str], ...]:
    """The access control lists of a file; its directory is one that can be flushed.

    Raises OSError.
    """
    with tree.opened(".", home):
        descriptor = os.open(name, tree.READ_FLAGS, dir_fd=home)
    try:
        return tuple((kind, value.hex()) for kind, value in ownership.before(descriptor).lists)
    finally:
        os.close(descriptor)


def _why_it_stays(offered: Offered, status: os.stat_result) -> str | None:
    ours = os.geteuid()
    if offered.keep:
        return "it is to be kept"
    if status.st_nlink > 1:
        return f"it has {status.st_nlink} names, by which it could be changed"
    if ours not in (0, status.st_uid):
        return f"it belongs to user {status.st_uid}, and weightd runs as {ours}"
    return None


def _must_be(source: _Source, now: os.stat_result) -> None:
    """Raise InvalidRequest when a file is another one than was looked at, or has changed."""
    then = source.status
    if (then.st_dev, then.st_ino, then.st_size, then.st_mtime_ns) != (
        now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns,
    ):  # fmt: skip
        refuse(source.offered.place, "it was changed while it was taken; try again")
