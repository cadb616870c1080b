"""Reading a published model to the last byte, and comparing it with its manifest.

`check` sees what ``stat`` shows.  Here every byte is hashed, and read from the
disk itself where the filesystem allows it (``O_DIRECT``): what counts is what
the disk has, and the pages of those who use the model stay where they are.

It is in nobody's way.  A file is open for one step at a time, under the lock
that looks and seizures take: an eviction that names the model waits for one
read, finds nobody who uses it, and goes ahead.  One thread reads, and has but
one read under way; another hashes what came before meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from weightd.model import Digest, FileEntry, Manifest
from weightd.store import check, faults, layout, tree
from weightd.store.idle import idle_reads
from weightd.store.manifest_file import Record, Stamp, Unreadable
from weightd.store.root import Root

STEP_BYTES: Final = 1 << 20
"""Read at once: the longest that an eviction waits for, and a multiple of any sector.

Less is slower, and more is as well where nothing else is asked of the disk meanwhile.
"""

_SECTOR: Final = 4096
"""Where a read that passes the page cache may begin."""

_UNREADABLE: Final = frozenset(
    {errno.EIO, errno.ENODATA, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ}
)
"""What a disk answers that has lost these bytes; other errors say nothing of them."""

Problem = Literal["missing", "changed", "digest-mismatch", "io-error"]


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a file, or where ``path`` is None with what stands around the files.

    ``reason`` is half a sentence, ``inode`` that of the file, None when it is not there.
    """

    path: str | None
    problem: Problem
    reason: str
    expected: Digest | None = None
    actual: Digest | None = None
    inode: int | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What a reading found; ``vanished`` when the model's directory was gone meanwhile."""

    flaws: tuple[Flaw, ...]
    vanished: bool = False


@dataclass(slots=True)
class Reading:
    """How far one reading is, for any thread to see: bytes ``done``, and of which ``file``.

    Set ``stopping`` and it ends after the step under way.
    """

    done: int = 0
    file: str | None = None
    stopping: bool = False


def verify(
    root: Root, manifest: Manifest, lock: threading.Lock, reading: Reading
) -> Verified | None:
    """See `Store.verify`."""
    idle_reads()
    with (
        faults.reading(f"verification of {manifest.key}"),
        ThreadPoolExecutor(1, thread_name_prefix="weightd-verify-hash") as hasher,
    ):
        return _Pass(root, manifest, lock, reading, hasher).run()


class _Stopped(Exception):
    """Nobody wants to know any more."""


class _Vanished(Exception):
    """The generation's directory is not there."""


class _Hash:
    """The sha256 of a file, taken by ``hasher`` of one step while the next is read."""

    def __init__(self, hasher: ThreadPoolExecutor) -> None:
        self._hasher = hasher
        self._digest = hashlib.sha256()
        self._under_way: Future[None] | None = None

    def update(self, view: memoryview) -> None:
        """Hash this next.  What was given before it may be written to again."""
        self.settle()
        self._under_way = self._hasher.submit(self._digest.update, view)

    def settle(self) -> None:
        """Wait for what is under way."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def finish(self) -> Digest:
        self.settle()
        return self._digest.hexdigest()


class _Pass:
    """One reading of one generation."""

    def __init__(
        self,
        root: Root,
        manifest: Manifest,
        lock: threading.Lock,
        reading: Reading,
        hasher: ThreadPoolExecutor,
    ) -> None:
        self._root = root
        self._manifest = manifest
        self._name = layout.generation_name(manifest.id)
        self._lock = lock
        self._reading = reading
        self._hasher = hasher
        # Mapped, since a read that passes the page cache wants whole pages.
        self._buffer, self._hashing = (memoryview(mmap.mmap(-1, STEP_BYTES)) for _ in range(2))
        self._direct = True
        self._inode: int | None = None

    def run(self) -> Verified | None:
        flaws: list[Flaw] = []
        try:
            record = self._record()
            if isinstance(record, Flaw):
                return Verified((record,))
            for entry, stamp in zip(record.manifest.files, record.stamps, strict=True):
                self._reading.file = entry.path
                before = self._reading.done
                flaw = self._flaw(entry, stamp)
                # What could not be read is behind all the same.
                self._reading.done = before + entry.bytes
                if flaw is not None:
                    flaws.append(flaw)
        except _Stopped:
            return None
        except _Vanished:
            return Verified(tuple(flaws), vanished=True)
        return Verified(tuple(flaws))

    def _record(self) -> Record | Flaw:
        try:
            with tree.opened(self._name, self._root.models) as generation:
                return check.record_of(self._root, self._manifest, generation)
        except FileNotFoundError:
            raise _Vanished from None
        except NotADirectoryError:
            return Flaw(None, "changed", "its directory is no longer a directory")
        except Unreadable as error:
            return Flaw(None, "changed", str(error))
        except OSError as error:
            if not self._is_damage(error):
                raise
            return Flaw(None, "io-error", f"its manifest cannot be read: {error.strerror}")

    def _flaw(self, entry: FileEntry, stamp: Stamp) -> Flaw | None:
        """What is wrong with a file, if anything is."""
        before = self._reading.done
        self._inode = None
        try:
            problem, reason, actual = self._compared(entry, stamp)
        except FileNotFoundError:
            problem, reason, actual = "missing", f"{entry.path} is missing", None
        except OSError as error:
            if not self._is_damage(error):
                raise
            at = self._reading.done - before
            problem, actual = "io-error", None
            reason = f"{entry.path} cannot be read at byte {at} or soon after: {error.strerror}"
        if problem is None:
            return None
        return Flaw(entry.path, problem, reason, entry.sha256, actual, self._inode)

    def _is_damage(self, error: OSError) -> bool:
        """Whether a failure to read is the model's: a disk that is gone has lost no model."""
        if error.errno not in _UNREADABLE:
            return False
        try:
            descriptor = os.open(layout.FORMAT, tree.READ_FLAGS, dir_fd=self._root.directory)
            try:
                if self._direct:
                    fcntl.fcntl(descriptor, fcntl.F_SETFL, tree.READ_FLAGS | os.O_DIRECT)
                return os.readv(descriptor, [self._buffer]) > 0
            finally:
                os.close(descriptor)
        except OSError as other:
            return other.errno not in _UNREADABLE

    def _compared(
        self, entry: FileEntry, stamp: Stamp
    ) -> tuple[Problem | None, str, Digest | None]:
        """What is wrong with a file that can be read, and what it hashes to.  Raises OSError."""
        digest = _Hash(self._hasher)
        # What one file, or how it was read, does not allow says nothing of the next.
        self._direct = hasattr(os, "O_DIRECT")
        try:
            return self._hashed(entry, stamp, digest)
        finally:
            digest.settle()

    def _hashed(
        self, entry: FileEntry, stamp: Stamp, digest: _Hash
    ) -> tuple[Problem | None, str, Digest | None]:
        at = 0
        while True:
            status, count = self._step(entry, at)
            fault = check.fault(entry, stamp, status)
            self._inode = status.st_ino
            if count is None or status.st_size != entry.bytes:
                return "changed", fault or "", None
            digest.update(self._buffer[:count])
            self._buffer, self._hashing = self._hashing, self._buffer
            at += count
            self._reading.done += count
            if at >= entry.bytes or not count:
                break
        actual = digest.finish()
        if actual != entry.sha256:
            return "digest-mismatch", f"{entry.path} is not what was published", actual
        return None if fault is None else "changed", fault or "", actual

    def _step(self, entry: FileEntry, at: int) -> tuple[os.stat_result, int | None]:
        """Read into the buffer from ``at`` on: the file's status, and how many bytes came.

        None came of what is no regular file.  Raises OSError, FileNotFoundError among them,
        and _Vanished when that is because the model has gone; _Stopped.
        """
        if self._reading.stopping:
            raise _Stopped
        path = f"{self._name}/{self._manifest.key.last_segment}/{entry.path}"
        with self._lock, self._opened(path) as descriptor:
            if descriptor is None:
                return self._status_of(path), None
            status = os.fstat(descriptor)
            return status, self._read(descriptor, at, min(STEP_BYTES, max(0, entry.bytes - at)))

    @contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        descriptor = tree.open_regular(self._root.models, path)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _status_of(self, path: str) -> os.stat_result:
        """Of what is there in place of a file."""
        if not tree.exists(self._name, self._root.models):
            raise _Vanished
        parent, _, last = path.rpartition("/")
        try:
            with tree.opened_below(self._root.models, parent) as directory:
                return os.stat(last, dir_fd=directory, follow_symlinks=False)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    def _read(self, descriptor: int, at: int, size: int) -> int:
        """Read what follows ``at``, once more where the disk fails at first.  Raises OSError."""
        try:
            return self._read_once(descriptor, at, size)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
        return self._read_once(descriptor, at, size)

    def _read_once(self, descriptor: int, at: int, size: int) -> int:
        if not size:
            return 0
        if self._direct:
            try:
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
                # All of the buffer: the end of a file need be no end of a sector.
                return _aligned(os.preadv(descriptor, [self._buffer], at), size)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            # Not offered here: what is in memory is read from there.
            self._direct = False
            fcntl.fcntl(descriptor, fcntl.F_SETFL, tree.READ_FLAGS)
        return os.preadv(descriptor, [self._buffer[:size]], at)


def _aligned(count: int, size: int) -> int:
    """Of ``count`` bytes that came for ``size``, so many that the next read begins at a sector."""
    return size if count >= size else count // _SECTOR * _SECTOR or count
