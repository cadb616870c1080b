"""The bytes of one file over HTTP, from any offset on, and no others.

A server may answer anything.  What is read here is what was asked for: the
right range, of a body of the length that was listed, whose ETag is the one
that was listed; all else is an error before a byte of it is handed on.  Where
nothing was listed that changes with the content, the first answer's ETag or
date is what the later ones are held to.  A body that tells no length is read to
its end, and OriginChanged when it has more bytes than it should.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Final

from weightd.errors import OriginChanged, OriginFailed
from weightd.origins.client import Answer, HttpClient
from weightd.origins.contract import RemoteFile, Stream
from weightd.origins.speaking import speaking

_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII)
_MARKS: Final = ("ETag", "Last-Modified")
DATED: Final = "Last-Modified: "
"""How a validator begins that is a date, since the server gives no strong ETag."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The range that is asked for; ``stop`` is None up to an end that nobody told."""

    file: RemoteFile
    start: int
    stop: int | None

    @property
    def whole(self) -> bool:
        """Whether it is asked for without a Range, which every server can answer."""
        return self.start == 0 and self.stop in (None, self.file.bytes)

    def headers(self) -> dict[str, str]:
        """Range, and the condition that it is still what was listed."""
        headers = precondition(self.file.validator)
        if not self.whole:
            last = "" if self.stop is None else str(self.stop - 1)
            headers["Range"] = f"bytes={self.start}-{last}"
        return headers


class FirstTold:
    """What an origin first told of each file that was listed without a validator.

    Two ranges of such a file are taken for parts of the same one only where
    nothing that both answers tell differs.  Any thread may use it.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._told: dict[str, dict[str, str]] = {}

    def forget(self) -> None:
        """The files are listed anew."""
        with self._changing:
            self._told.clear()

    def keep(self, location: str, headers: Message) -> Mapping[str, str]:
        """Remember what was not told before; what was."""
        told = {name: headers[name] for name in _MARKS if name in headers}
        with self._changing:
            before = self._told.get(location, {})
            self._told[location] = told | before
        return before

    def must_be_one(self, source: str, file: RemoteFile, answer: Answer) -> None:
        """Raise OriginChanged where two reads of a file would not give parts of the same one."""
        told = self.keep(file.location, answer.headers)
        for name in _MARKS:
            before, now = told.get(name), answer.headers.get(name)
            if before is None or now is None:
                continue
            if before != now:
                words = f"{file.path} is another one than a moment ago, by its {name}"
                raise OriginChanged(source, words, http_status=answer.status)
            # An ETag says more than a date, which some servers make up for each answer.
            return


def open_ranged(
    client: HttpClient,
    url: str,
    file: RemoteFile,
    start: int,
    stop: int | None,
    check: Callable[[Answer], None] | None = None,
    told: FirstTold | None = None,
) -> Stream:
    """Ask for a range of a file; ``check`` may raise for what this kind of origin tells besides.

    ``told`` is what earlier answers of this origin said of its files.

    Raises OriginFailed, OriginTimeout or OriginChanged.
    """
    end = file.bytes if stop is None else stop
    wanted = Wanted(file, start, end)
    if end is not None and end <= start:
        return Nothing()
    with client.hushing():
        return _open(client, url, wanted, check, told)


def _open(
    client: HttpClient,
    url: str,
    wanted: Wanted,
    check: Callable[[Answer], None] | None,
    told: FirstTold | None,
) -> Stream:
    file = wanted.file
    answer = client.get(url, wanted.headers())
    try:
        if check is not None:
            check(answer)
        length = _length(client.source, answer, wanted)
        if told is not None and file.validator is None:
            told.must_be_one(client.source, file, answer)
    except BaseException:
        answer.close()
        raise
    # Of a body without a length only its end tells that it is as long as was listed.
    ends = answer.length is None and (answer.status == 206 or wanted.stop == file.bytes)
    return HttpStream(client, answer, file.path, length, ends=ends)


def precondition(validator: str | None) -> dict[str, str]:
    """The header under which a server answers 412 for anything but what was listed."""
    if validator is None:
        return {}
    if validator.startswith(DATED):
        return {"If-Unmodified-Since": validator.removeprefix(DATED)}
    return {"If-Match": validator} if validator.startswith('"') else {}


def _length(source: str, answer: Answer, wanted: Wanted) -> int | None:
    """How many bytes to read of the answer's body; None up to its end.

    Raises OriginFailed or OriginChanged for any answer but the one asked for.
    """
    file = wanted.file
    if answer.status in (412, 416):
        raise OriginChanged(source, f"{file.path} is another one", http_status=answer.status)
    if answer.status not in (200, 206):
        failure = answer.failure()
        failure.words = f"{file.path}: {failure.words}"
        raise failure
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        words = f"{file.path}: it is sent encoded ({encoding[:20]}), which was not asked for"
        raise OriginFailed(source, words, retryable=False)
    _must_be_listed(source, answer, file)
    if answer.status == 206:
        return _part(source, answer, wanted)
    if answer.length is not None and file.bytes not in (None, answer.length):
        words = f"{file.path} has {answer.length} bytes, not {file.bytes}"
        raise OriginChanged(source, words, http_status=200)
    if wanted.start:
        words = f"{file.path}: it gives no part of a file, only the whole"
        raise OriginFailed(source, words, http_status=200, ranges=False)
    return answer.length if wanted.stop is None else wanted.stop


def _must_be_listed(source: str, answer: Answer, file: RemoteFile) -> None:
    """Raise OriginChanged where a server that ignores conditions says that it is another one."""
    if file.validator is None:
        return
    if file.validator.startswith(DATED):
        told = answer.headers.get("Last-Modified")
        same = told is None or DATED + told == file.validator
    else:
        told = answer.headers.get("ETag")
        same = told is None or told.removeprefix("W/") == file.validator
    if not same and precondition(file.validator):
        words = f"{file.path} is another one, by its ETag or date"
        raise OriginChanged(source, words, http_status=answer.status)


def _part(source: str, answer: Answer, wanted: Wanted) -> int:
    """The length of the part in a 206.  Raises OriginFailed or OriginChanged."""
    file = wanted.file
    told = answer.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(told.strip())
    if match is None:
        words = f"{file.path}: it gives a part and does not say which ({told[:60]!r})"
        raise OriginFailed(source, words, http_status=206, retryable=False)
    first, last, total = int(match[1]), int(match[2]), match[3]
    if total != "*" and file.bytes not in (None, int(total)):
        words = f"{file.path} has {total} bytes, not {file.bytes}"
        raise OriginChanged(source, words, http_status=206)
    asked = first == wanted.start and (wanted.stop is None or last < wanted.stop)
    if not asked or answer.length not in (None, last - first + 1):
        words = f"{file.path}: asked for bytes from {wanted.start} on, it gives {told[:60]!r}"
        raise OriginFailed(source, words, http_status=206, retryable=False)
    return last - first + 1 if wanted.stop is None else wanted.stop - wanted.start


class HttpStream:
    """The body of an answer, as far as it was asked for."""

    def __init__(
        self, client: HttpClient, answer: Answer, path: str, length: int | None, *, ends: bool
    ) -> None:
        """``ends`` says that the body must, after ``length`` bytes."""
        self._ends = ends
        self._client = client
        self._answer = answer
        self._path = path
        self._length = length
        self._read = 0
        self._changing = threading.Lock()
        self._reading = False
        self._closed = False

    def readinto(self, buffer: memoryview) -> int:
        """See `Stream.readinto`."""
        with self._changing:
            if self._closed:
                raise OriginFailed(self._client.source, f"{self._path}: the stream was closed")
            self._reading = True
        try:
            with self._client.hushing():
                return self._some(buffer)
        finally:
            self._rest()

    def _rest(self) -> None:
        """The reader is out; it closes what was cut meanwhile."""
        with self._changing:
            self._reading = False
            closed = self._closed
        if closed:
            self._answer.close()

    def _some(self, buffer: memoryview) -> int:
        if self._length is not None:
            buffer = buffer[: self._length - self._read]
        if len(buffer) == 0:
            return 0
        client = self._client
        with speaking(client.source, f"{self._path}: reading on", client.patience.progress):
            size = self._answer.readinto(buffer)
            self._read += size
            if self._ends and self._read == self._length and self._answer.readinto(_one_byte()):
                words = f"{self._path} goes on after the {self._length} bytes that there should be"
                raise OriginChanged(client.source, words, http_status=self._answer.status)
        if size == 0 and self._length is not None:
            words = f"{self._path}: it ended after {self._read} of {self._length} bytes"
            raise OriginFailed(client.source, words)
        return size

    def close(self) -> None:
        """See `Stream.close`."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
            reading = self._reading
        if reading:
            self._answer.cut()
        else:
            self._answer.close()


def _one_byte() -> memoryview:
    """Room for a byte that should not come."""
    return memoryview(bytearray(1))


class Nothing:
    """No bytes, for which nobody is asked."""

    def readinto(self, _buffer: memoryview) -> int:
        """Nothing, at once."""
        return 0

    def close(self) -> None:
        """Nothing is open."""
