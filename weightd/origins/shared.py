"""``file://``: a file or directory of a filesystem that is mounted here.

Nothing is read that lies, its links resolved, outside the directories that the
operator lists.  That is asked of the open descriptor, so nobody can exchange a
directory for a link between the question and the reading.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from weightd.errors import OriginChanged, OriginFailed
from weightd.origins.allowing import below_any
from weightd.origins.answers import is_text
from weightd.origins.contract import Listing, OriginKind, RemoteFile, Stream, Trust
from weightd.origins.query import matches
from weightd.origins.reference import Reference, invalid
from weightd.origins.revisions import revision_of
from weightd.origins.speaking import printable

_FILES_MAX: Final = 100_000
_PASSING: Final = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""What the system says of a disk or a network that may be well again; the rest stays so."""


class FileOrigin:
    """See `weightd.origins.contract.Origin`."""

    kind: OriginKind = "file"

    def __init__(self, reference: Reference, trust: Trust) -> None:
        self._reference = reference
        self._roots = tuple(str(root) for root in trust.import_roots)

    def list(self) -> Listing:
        """See `Origin.list`."""
        try:
            files = sorted(self._files(), key=lambda file: file.path)
        except OSError as error:
            raise self._failed(error) from None
        if not files and self._reference.options:
            raise invalid(f"the patterns of {self._reference} leave none of its files")
        if not files:
            raise self._refused("there is no file in it")
        return Listing(tuple(files), revision_of(files))

    def open(self, file: RemoteFile, start: int = 0, stop: int | None = None) -> Stream:
        """See `Origin.open`."""
        try:
            descriptor = self._open(file.location)
        except FileNotFoundError:
            raise OriginChanged(self._reference.text, f"{file.path} is gone") from None
        except OSError as error:
            raise self._failed(error) from None
        try:
            now = os.fstat(descriptor)
            if validator_of(now) != file.validator:
                raise OriginChanged(self._reference.text, f"{file.path} is another one")
        except BaseException:
            os.close(descriptor)
            raise
        end = now.st_size if stop is None else stop
        return FileStream(self._reference.text, file, descriptor, start, end)

    def close(self) -> None:
        """See `Origin.close`."""

    # -- Listing -------------------------------------------------------------------

    def _files(self) -> Iterator[RemoteFile]:
        path = self._reference.path
        if not stat.S_ISDIR(os.stat(path).st_mode):
            yield self._file(os.path.basename(path), path)
            return
        allow, ignore = self._reference.option("allow"), self._reference.option("ignore")
        count = 0
        for directory, below, names in os.walk(path, onerror=_raise):
            for name in [*names, *(one for one in below if _is_link(directory, one))]:
                here = os.path.join(directory, name)
                relative = os.path.relpath(here, path)
                if matches(relative, allow, ignore):
                    if not is_text(relative):
                        raise self._refused(f"the name {relative!r:.200} is not UTF-8")
                    yield self._file(relative, here)
                    count += 1
                    if count > _FILES_MAX:
                        raise self._refused(f"there are more than {_FILES_MAX} files in it")

    def _file(self, relative: str, path: str) -> RemoteFile:
        descriptor = self._open(path)
        try:
            now = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return RemoteFile(relative, now.st_size, path, validator=validator_of(now))

    def _open(self, path: str) -> int:
        """A descriptor of a plain file that lies where it may.  Raises OSError or OriginFailed."""
        # O_NONBLOCK, since the opening of a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._refused(f"{path!r:.200} is no plain file")
            if not below_any(os.readlink(f"/proc/self/fd/{descriptor}"), self._roots):
                raise self._refused(f"{path!r:.200} leads out of import_roots")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _refused(self, words: str) -> OriginFailed:
        return OriginFailed(self._reference.text, words, retryable=False)

    def _failed(self, error: OSError) -> OriginFailed:
        words = printable(f"{error.filename or 'reading'}: {error.strerror}")
        return OriginFailed(self._reference.text, words, retryable=error.errno in _PASSING)


class FileStream:
    """A range of an open file."""

    def __init__(
        self, source: str, file: RemoteFile, descriptor: int, start: int, stop: int
    ) -> None:
        self._source = source
        self._file = file
        self._descriptor = descriptor
        self._at = start
        self._stop = stop
        self._closed = False
        # Held while the descriptor is used, so that nobody closes it under the reader.
        self._using = threading.Lock()

    def readinto(self, buffer: memoryview) -> int:
        """See `Stream.readinto`."""
        buffer = buffer[: max(0, self._stop - self._at)]
        with self._used():
            size = self._read(buffer) if len(buffer) else 0
        self._at += size
        return size

    def lend(self, take: Callable[[int, int, int], None], most: int) -> int:
        """See `weightd.origins.contract.FileStream`."""
        size = min(most, self._stop - self._at)
        if size <= 0:
            return 0
        with self._used():
            take(self._descriptor, self._at, size)
            self._must_be_same()
        self._at += size
        return size

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Keep the descriptor open; what closes the stream meanwhile leaves it to this."""
        with self._using:
            if self._closed:
                self._let_go()
                raise OriginFailed(self._source, f"{self._file.path}: the stream was closed")
            yield

    def _read(self, buffer: memoryview) -> int:
        try:
            size = os.preadv(self._descriptor, [buffer], self._at)
        except OSError as error:
            words = f"{self._file.path}: {error.strerror}"
            raise OriginFailed(self._source, words) from None
        self._must_be_same()
        if size == 0:
            words = f"{self._file.path}: it ended {self._stop - self._at} bytes before its end"
            raise OriginFailed(self._source, words)
        return size

    def _must_be_same(self) -> None:
        """Raise OriginChanged for a file that was written to since it was listed.

        One that is written in place while it is read is neither the old nor the new.
        """
        try:
            now = os.fstat(self._descriptor)
        except OSError as error:
            words = f"{self._file.path}: {error.strerror}"
            raise OriginFailed(self._source, words) from None
        if validator_of(now) != self._file.validator:
            raise OriginChanged(self._source, f"{self._file.path} is written to")

    def close(self) -> None:
        """See `Stream.close`; a read that hangs in the kernel closes it when it is back."""
        self._closed = True
        if self._using.acquire(blocking=False):
            try:
                self._let_go()
            finally:
                self._using.release()

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def validator_of(now: os.stat_result) -> str:
    """What changes when a file is written to or replaced."""
    return f"{now.st_ino}-{now.st_size}-{now.st_mtime_ns}"


def _is_link(directory: str, name: str) -> bool:
    """Whether what the walk takes for a directory, and does not enter, is a link to one."""
    return os.path.islink(os.path.join(directory, name))


def _raise(error: OSError) -> None:
    raise error
