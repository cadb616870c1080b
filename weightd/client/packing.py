"""What a put sends: a file as it is, a directory as a tar stream of known length."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from weightd.client.calls import PutTerms
from weightd.client.effects import Body
from weightd.client.faults import Unsendable

PIECE_BYTES: Final = 1 << 20
DEPTH_MAX: Final = 32
"""No model is deeper, and a link that leads back above itself ends here."""

_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)


class _Member(NamedTuple):
    """A file of a directory: ``name`` below it, ``place`` on disk, length, and its tar header."""

    name: str
    place: Path
    size: int
    header: bytes


def packed(source: str | os.PathLike[str] | bytes, terms: PutTerms) -> tuple[Body, PutTerms]:
    """The body and the terms to put a file, a directory or bytes.  Raises Unsendable."""
    if isinstance(source, bytes):
        return Body(lambda: iter([source] if source else []), len(source)), terms
    place = Path(source)
    status = _status(place)
    if stat.S_ISDIR(status.st_mode):
        if terms.file is not None or terms.sha256 is not None:
            raise Unsendable(str(place), "a directory takes neither a file's name nor its sha256")
        return _directory(place), terms._replace(archive=True)
    if not stat.S_ISREG(status.st_mode):
        raise Unsendable(str(place), "it is neither a file nor a directory")
    # The name it has is the name it gets, as in a directory.
    named = terms if terms.file is not None else terms._replace(file=place.name)
    size = status.st_size
    return Body(lambda: _pieces(place, size), size), named


def _directory(place: Path) -> Body:
    members = list(_members(place))
    if not members:
        raise Unsendable(str(place), "there is no file in it")
    length = sum(len(one.header) + one.size + _padding(one.size) for one in members)
    return Body(lambda: _stream(members), length + len(_END))


def _members(top: Path) -> Iterator[_Member]:
    """Every file, in the order of the names; links count as what they point at."""
    ahead = [(top, "", 0)]
    while ahead:
        directory, prefix, depth = ahead.pop()
        if depth > DEPTH_MAX:
            raise Unsendable(str(directory), f"it is more than {DEPTH_MAX} directories deep")
        for name in sorted(_names(directory)):
            place = directory / name
            status = _status(place)
            if stat.S_ISDIR(status.st_mode):
                ahead.append((place, f"{prefix}{name}/", depth + 1))
            elif stat.S_ISREG(status.st_mode):
                size = status.st_size
                yield _Member(prefix + name, place, size, _header(place, prefix + name, size))
            else:
                raise Unsendable(str(place), "it is neither a file nor a directory")


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        raise Unsendable(str(directory), error.strerror or str(error)) from error


def _status(place: Path) -> os.stat_result:
    try:
        return place.stat()
    except OSError as error:
        raise Unsendable(str(place), error.strerror or str(error)) from error


def _header(place: Path, name: str, size: int) -> bytes:
    import tarfile

    member = tarfile.TarInfo(name)
    member.size = size
    try:
        return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    except UnicodeError:
        raise Unsendable(str(place), "its name is not valid UTF-8") from None


def _stream(members: list[_Member]) -> Iterator[bytes]:
    for one in members:
        yield one.header
        yield from _pieces(one.place, one.size)
        if padding := _padding(one.size):
            yield bytes(padding)
    yield _END


def _padding(size: int) -> int:
    return -size % _BLOCK


def _pieces(place: Path, size: int) -> Iterator[bytes]:
    """The bytes of a file, exactly ``size``.  Raises Unsendable when it has changed since."""
    try:
        with open(place, "rb", buffering=0) as file:
            left = size
            while left:
                piece = file.read(min(PIECE_BYTES, left))
                if not piece:
                    raise Unsendable(str(place), f"it is {left} bytes shorter than a moment ago")
                left -= len(piece)
                yield piece
            if file.read(1):
                raise Unsendable(str(place), f"it is longer than the {size} bytes of a moment ago")
    except OSError as error:
        raise Unsendable(str(place), error.strerror or str(error)) from error
