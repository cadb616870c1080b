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


class File(NamedTuple):
    """A file to be put: its ``name`` in the model, its ``place`` here, its size."""

    name: str
    place: Path
    size: int


class Listing(NamedTuple):
    """The files of what is to be put; ``directory`` says that it is more than one file's worth."""

    files: tuple[File, ...]
    directory: bool

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def given(source: str | os.PathLike[str]) -> Path:
    """The path that a caller names.

    Raises Unsendable for an empty one: a variable without a value would be the directory that
    this process happens to be in.
    """
    if not os.fspath(source):
        raise Unsendable("''", "the path is empty; '.' is the directory that this runs in")
    return Path(source)


def listed(source: str | os.PathLike[str], terms: PutTerms) -> Listing:
    """What a file or a directory has.  Raises Unsendable."""
    place = given(source)
    status = _status(place)
    if stat.S_ISREG(status.st_mode):
        # The name it has is the name it gets, as in a directory.
        return Listing((File(terms.file or place.name, place, status.st_size),), False)
    if not stat.S_ISDIR(status.st_mode):
        raise Unsendable(str(place), "it is neither a file nor a directory")
    if terms.file is not None or terms.sha256 is not None:
        raise Unsendable(str(place), "a directory takes neither a file's name nor its sha256")
    files = tuple(_files(place))
    if not files:
        raise Unsendable(str(place), "there is no file in it")
    return Listing(files, True)


def packed(listing: Listing) -> Body:
    """What a PUT sends of it: the file as it is, a directory as a tar stream."""
    if not listing.directory:
        [file] = listing.files
        return Body(lambda: _pieces(file.place, file.size), file.size)
    members = [(file, _header(file)) for file in listing.files]
    length = sum(len(header) + file.size + _padding(file.size) for file, header in members)
    return Body(lambda: _stream(members), length + len(_END))


def _files(top: Path) -> Iterator[File]:
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
                yield File(prefix + name, place, status.st_size)
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


def _header(file: File) -> bytes:
    import tarfile

    member = tarfile.TarInfo(file.name)
    member.size = file.size
    try:
        return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    except UnicodeError:
        raise Unsendable(str(file.place), "its name is not valid UTF-8") from None


def _stream(members: list[tuple[File, bytes]]) -> Iterator[bytes]:
    for file, header in members:
        yield header
        yield from _pieces(file.place, file.size)
        if padding := _padding(file.size):
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
