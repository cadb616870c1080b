"""Reading a tar stream that nobody vouches for.

The standard library's ``tarfile`` is not used: it reads a pax header or a long
name whole, whatever length the archive claims, it stops in silence at the first
zeroed block, and where dialects disagree (a ustar prefix behind a GNU magic, a
directory with a length, a pax path beside a GNU long name) it picks a meaning.
An archive that two readers can understand differently is refused here.

Understood: v7, ustar, GNU (long names) and pax (path, size).  Everything is
bounded: a header's extension, the number of members, the sum of their names.
Links, devices, sparse files and multi-volume pieces are refused, because a
model is files.  Owner, mode and time are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from weightd.errors import InvalidArchive
from weightd.model import file_path_fault
from weightd.store.names import Names
from weightd.store.source import Source, fill

BLOCK: Final = 512
EXTENSION_BYTES_MAX: Final = 1 << 20
TRAILING_BYTES_MAX: Final = 64 << 20
HEADERS_MAX: Final = 1_000_000
"""Headers in one archive, those of directories and extensions included; else it need never end."""

HEADER_BYTES_MAX: Final = 256 << 20
"""What all extended headers of one archive come to."""

MEMBER_BYTES_MAX: Final = (1 << 63) - 1

_ZERO: Final = bytes(BLOCK)
_GZIP: Final = b"\x1f\x8b"
_REGULAR: Final = frozenset({b"0", b"\0", b"7"})
_REFUSED: Final = {
    b"1": "it is a hard link, and a model holds files only",
    b"2": "it is a symbolic link, and a model holds files only; tar -h packs what it points at",
    b"3": "it is a character device",
    b"4": "it is a block device",
    b"6": "it is a fifo",
    b"S": "it is sparse, which is not supported; pack without --sparse",
    b"K": "it is a link, and a model holds files only",
    b"M": "it continues another volume",
    b"D": "it is an incremental dump's directory",
    b"V": "it is a volume label",
}
_IGNORED: Final = (
    ("mode", 100, 108),
    ("uid", 108, 116),
    ("gid", 116, 124),
    ("mtime", 136, 148),
    ("device", 329, 337),
    ("device", 337, 345),
)
_OCTAL: Final = re.compile(rb" *([0-7]*)[ \0]*", re.ASCII)
_PAX_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,6}) ", re.ASCII)
_DECIMAL: Final = re.compile(rb"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file of the archive: its path below the model, and its length in bytes."""

    path: str
    size: int


@dataclass(slots=True)
class _Extension:
    """What headers ahead of a member say about it; GNU and pax are never mixed."""

    path: bytes | None = None
    size: int | None = None
    kind: bytes | None = None


class TarReader:
    """The regular files of a tar stream, in order.

    Iterate over `members`, and read each member to its end by `readinto` (it is
    a `Source`) before going on.  Raises InvalidArchive, and whatever the source
    raises.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._header = bytearray(BLOCK)
        self._left = 0
        self._padding = 0
        self._current: str | None = None
        self._headers = 0
        self._header_bytes = 0
        self._names = Names()

    def members(self) -> Iterator[Member]:
        """Yield each regular file's header; directories are checked and passed over."""
        extension = _Extension()
        files = 0
        while (header := self._next_header()) is not None:
            kind = header[156:157]
            if kind in (b"x", b"g", b"L"):
                extension = self._extend(header, kind, extension)
                continue
            member = self._member(header, kind, extension)
            extension = _Extension()
            if member is not None:
                files += 1
                yield member
                if self._left:
                    raise RuntimeError(f"{member.path} was not read to its end")
                self._skip_padding()
        if extension.kind is not None:
            _refuse("it ends after a member's extended header")
        if not files:
            _refuse("it holds no file")
        self._drain()

    def readinto(self, buffer: memoryview) -> int:
        """Read from the current member; 0 at its end.  Raises InvalidArchive when truncated."""
        if not self._left:
            return 0
        count = self._source.readinto(buffer[: min(len(buffer), self._left)])
        if not count:
            _refuse(f"it is truncated, {self._left} bytes short of this member", self._current)
        self._left -= count
        return count

    # -- headers ---------------------------------------------------------------

    def _next_header(self) -> bytes | None:
        """The next header that is not zero, None at the end marker."""
        header = self._block()
        if header is None:
            _refuse("it is truncated: there is no end marker")
        self._headers += 1
        if self._headers == 1 and header.startswith(_GZIP):
            _refuse("it is compressed by gzip; send it as it is, by tar -cf")
        if self._headers > HEADERS_MAX:
            _refuse(f"it has more than {HEADERS_MAX} headers")
        if header != _ZERO:
            return header
        second = self._block()
        if second not in (None, _ZERO):
            _refuse("a single zeroed block stands where a member's header belongs")
        return None

    def _block(self) -> bytes | None:
        """The next block, None at the end of the stream."""
        count = fill(self._source, memoryview(self._header))
        if count == 0:
            return None
        if count < BLOCK:
            _refuse("it is truncated in a header")
        return bytes(self._header)

    def _extend(self, header: bytes, kind: bytes, ahead: _Extension) -> _Extension:
        _check(header, None)
        size = _number(header[124:136], "length of an extended header", None)
        if size > EXTENSION_BYTES_MAX:
            _refuse(f"an extended header has {size} bytes, more than {EXTENSION_BYTES_MAX}")
        data = self._extension_bytes(size)
        if kind == b"g":
            if ahead.kind is not None:
                _refuse("a global header stands between a member and its extended header")
            _refuse_sparse_or(data, "a global header names members")
            return ahead
        if ahead.kind is not None:
            _refuse("a member has two extended headers")
        if kind == b"L":
            name, ended, rest = data.partition(b"\0")
            # Some readers go on to the first NUL, wherever that is.
            if not ended or rest.strip(b"\0"):
                _refuse("a long name does not end where its header says")
            return _Extension(path=name, kind=kind)
        records = _pax_records(data)
        return _Extension(path=records.get(b"path"), size=_pax_size(records), kind=kind)

    def _extension_bytes(self, size: int) -> bytes:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            _refuse(f"its extended headers have more than {HEADER_BYTES_MAX} bytes together")
        data = bytearray(size + -size % BLOCK)
        if fill(self._source, memoryview(data)) < len(data):
            _refuse("it is truncated in an extended header")
        return bytes(data[:size])

    def _member(self, header: bytes, kind: bytes, extension: _Extension) -> Member | None:
        raw = _field(header[:100]) if extension.path is None else extension.path
        shown = raw[:200].decode("utf-8", "backslashreplace")
        gnu = _check(header, shown)
        if extension.path is None:
            raw = _with_prefix(raw, header[345:500], gnu, shown)
        size = _number(header[124:136], "length", shown)
        if extension.size is not None:
            size = extension.size
        if kind in _REFUSED:
            _refuse(_REFUSED[kind], shown)
        if kind == b"\0" and raw.endswith(b"/"):
            kind = b"5"
        if kind == b"5":
            if size:
                _refuse("it is a directory with a length", shown)
            self._directory(raw, shown)
            return None
        if kind not in _REGULAR:
            _refuse(f"it is of the unknown type {kind!r}", shown)
        return self._file(raw, size, shown)

    def _file(self, raw: bytes, size: int, shown: str) -> Member:
        path = _path(raw, shown)
        if (reason := self._names.add_file(path)) is not None:
            _refuse(reason, shown)
        self._left, self._padding, self._current = size, -size % BLOCK, path
        return Member(path, size)

    def _directory(self, raw: bytes, shown: str) -> None:
        stripped = raw.removesuffix(b"/")
        if stripped in (b".", b""):
            if raw in (b".", b"./"):
                return
            _refuse("its name is empty or absolute", shown)
        if (reason := self._names.add_directory(_path(stripped, shown))) is not None:
            _refuse(reason, shown)

    # -- what no member owns -----------------------------------------------------

    def _skip_padding(self) -> None:
        padding = memoryview(self._header)[: self._padding]
        if fill(self._source, padding) < self._padding:
            _refuse("it is truncated in the padding of this member", self._current)

    def _drain(self) -> None:
        """Read what follows the end marker, which packers pad to a record, and no more of it."""
        scratch = memoryview(bytearray(64 << 10))
        drained = 0
        while count := self._source.readinto(scratch):
            drained += count
            if drained > TRAILING_BYTES_MAX:
                _refuse(f"more than {TRAILING_BYTES_MAX} bytes follow its end marker")


def _refuse(reason: str, member: str | None = None) -> NoReturn:
    raise InvalidArchive(reason=reason, member=member)


def _check(header: bytes, shown: str | None) -> bool:
    """Check the sum and the magic of a header; True for the GNU dialect."""
    stated = _number(header[148:156], "checksum", shown)
    blanked = header[:148] + b" " * 8 + header[156:]
    # Some old packers summed signed characters.
    if stated != sum(blanked) and stated != sum(memoryview(blanked).cast("b")):
        _refuse("a header's checksum is wrong, or this is no tar archive", None)
    for name, start, end in _IGNORED:
        # Never used, but where it is no number other readers end the archive in silence.
        if header[start] not in (0x80, 0xFF):
            _number(header[start:end], name, shown)
    magic = header[257:263]
    if magic not in (b"ustar\0", b"ustar ", b"\0" * 6):
        _refuse(f"it is of the unknown dialect {magic!r}", shown)
    return magic == b"ustar "


def _field(raw: bytes) -> bytes:
    """A text field, which ends at its first NUL."""
    return raw.partition(b"\0")[0]


def _number(raw: bytes, what: str, shown: str | None) -> int:
    """A numeric field: octal, or base 256 when its first bit is set."""
    if raw[0] == 0x80:
        value = int.from_bytes(raw[1:], "big")
    elif (match := _OCTAL.fullmatch(raw)) is not None:
        value = int(match[1] or b"0", 8)
    else:
        _refuse(f"its {what} is not a number", shown)
    if value > MEMBER_BYTES_MAX:
        _refuse(f"its {what} is absurd", shown)
    return value


def _with_prefix(name: bytes, prefix: bytes, gnu: bool, shown: str) -> bytes:
    """The whole name of a ustar member.  GNU keeps other things where ustar has its prefix."""
    if gnu and prefix.strip(b"\0"):
        _refuse("it is part of an incremental dump", shown)
    head = _field(prefix)
    return head + b"/" + name if head else name


def _path(raw: bytes, shown: str) -> str:
    """The path below the model; leading "./" means nothing.  Raises InvalidArchive."""
    while raw.startswith(b"./"):
        raw = raw[2:]
    try:
        path = raw.decode()
    except UnicodeDecodeError:
        _refuse("its name is not valid UTF-8", shown)
    if (fault := file_path_fault(path)) is not None:
        _refuse(f"its name is refused: {fault}", shown)
    return path


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header, the last of a name winning.  Raises InvalidArchive."""
    records: dict[bytes, bytes] = {}
    start = 0
    while start < len(data):
        match = _PAX_LENGTH.match(data, start)
        end = start + int(match[1]) if match else 0
        if match is None or end > len(data) or data[end - 1 : end] != b"\n":
            _refuse("a pax header is malformed")
        name, equals, value = data[match.end() : end - 1].partition(b"=")
        if not equals or not name:
            _refuse("a pax header is malformed")
        records[name] = value
        start = end
    if any(name.startswith(b"GNU.sparse") for name in records):
        _refuse(_REFUSED[b"S"])
    for name in (b"path", b"size"):
        if records.get(name) == b"":
            _refuse(f"a pax header gives an empty {name.decode()}")
    return records


def _pax_size(records: dict[bytes, bytes]) -> int | None:
    text = records.get(b"size")
    if text is None:
        return None
    if _DECIMAL.fullmatch(text) is None or int(text) > MEMBER_BYTES_MAX:
        _refuse("a pax header gives a size that is not a number of bytes")
    return int(text)


def _refuse_sparse_or(data: bytes, reason: str) -> None:
    """Accept a global header of comments only (``git archive`` writes one)."""
    records = _pax_records(data)
    if records.keys() & {b"path", b"size", b"linkpath"}:
        _refuse(reason)
