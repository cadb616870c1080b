"""What an adoption offers: files where they are, with the hashes that are known of them.

Nothing is read here but what says a hash: a list by sha256sum, and what the
hub's client wrote down beside a download.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from weightd.client.faults import Unsendable
from weightd.client.packing import DEPTH_MAX, given

DOWNLOADS: Final = Path(".cache") / "huggingface"
"""What the hub's client keeps of a download to a directory; no part of the model."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SUM: Final = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(.)")
_CHANGED_SECONDS: Final = 1.0
_STAYS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.ENOTEMPTY})
"""An empty directory of somebody else's, or on which something is mounted; or not empty again."""


class Offer(NamedTuple):
    """A file: its ``name`` in the model, its ``place`` here.

    A ``trusted`` file is not read.  One to ``keep`` stays where it is, and its blocks are
    shared; with ``copy`` it is copied where they cannot be.
    """

    name: str
    place: str
    size: int
    sha256: str | None = None
    trusted: bool = False
    keep: bool = False
    copy: bool = False


class Offering(NamedTuple):
    """What is to be one model; ``tidy`` is called once it is, for what is left where it was."""

    files: tuple[Offer, ...]
    tidy: Callable[[], None]
    source: str | None = None
    revision: str | None = None

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def unread(self) -> bool:
        """Whether every hash is known, so that nothing has to be read."""
        return all(file.trusted for file in self.files)

    def checked(self) -> Offering:
        """The same, where nothing is taken on trust."""
        files = tuple(file._replace(trusted=False) for file in self.files)
        return self._replace(files=files)

    def kept(self, *, copy: bool = False) -> Offering:
        """The same, where everything stays where it is."""
        files = tuple(file._replace(keep=True, copy=file.copy or copy) for file in self.files)
        return self._replace(files=files, tidy=_nothing)


def offered(
    source: str | os.PathLike[str],
    sums: str | os.PathLike[str] | None,
    keep: bool,
    check: bool,
) -> Callable[[], Offering]:
    """What finds the offering of a directory or a file; it may raise Unsendable."""

    def found() -> Offering:
        offering = directory(source, sums)
        offering = offering.kept() if keep else offering
        return offering.checked() if check else offering

    return found


def directory(source: str | os.PathLike[str], sums: str | os.PathLike[str] | None) -> Offering:
    """The files of a directory, or one file, with the hashes that ``sums`` lists.

    Raises Unsendable for what is no model's, and for a list of other files.
    """
    top = Path(os.path.realpath(given(source)))
    if not os.path.isdir(top):
        found = {top.name: _regular(top)}
        known = {} if sums is None else _listed(Path(sums), top.parent)
        home = top.parent
    else:
        found = dict(_files(top))
        known = _downloaded(top, found) | ({} if sums is None else _listed(Path(sums), top))
        home = top
    if not found:
        raise Unsendable(str(source), "there is no file in it")
    if sums is not None and not known.keys() & found.keys():
        raise Unsendable(str(sums), f"it lists no file of {top}")
    files = tuple(
        Offer(name, str(home / name), size, known.get(name), name in known)
        for name, size in found.items()
    )
    return Offering(files, lambda: _tidy(top))


def _nothing() -> None:
    pass


def _regular(place: Path) -> int:
    """The size of a plain file.  Raises Unsendable."""
    try:
        status = place.lstat()
    except OSError as error:
        raise Unsendable(str(place), error.strerror or str(error)) from error
    if stat.S_ISLNK(status.st_mode):
        raise Unsendable(
            str(place),
            "it is a link, and what it points at may be another's; `weightd put` copies it, and "
            "`weightd adopt` takes what is in a cache of the hub's client",
        )
    if not stat.S_ISREG(status.st_mode):
        raise Unsendable(str(place), "it is neither a file nor a directory")
    return status.st_size


def _files(top: Path, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Every file and its size, in the order of the names."""
    place = top / prefix
    if depth > DEPTH_MAX:
        raise Unsendable(str(place), f"it is more than {DEPTH_MAX} directories deep")
    try:
        with os.scandir(place) as entries:
            listed = sorted(entries, key=lambda one: one.name)
    except OSError as error:
        raise Unsendable(str(place), error.strerror or str(error)) from error
    for entry in listed:
        name = prefix + entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield name, _regular(top / name)
        elif Path(name) != DOWNLOADS:
            yield from _files(top, name + "/", depth + 1)


# -- Hashes that are known --------------------------------------------------------------


def _listed(sums: Path, top: Path) -> dict[str, str]:
    """What a list by sha256sum says of files below ``top``: relative to it, or to the list."""
    try:
        lines = sums.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise Unsendable(str(sums), error.strerror or str(error)) from error
    homes = (top, Path(os.path.realpath(sums)).parent, Path.cwd())
    known = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _SUM.fullmatch(line)
        if match is None:
            reason = f"line {number} is not as sha256sum writes it: 64 hex digits, two spaces, name"
            raise Unsendable(str(sums), reason)
        name = _unescaped(match[3]) if match[1] else match[3]
        for home in homes:
            place = os.path.normpath(home / name)
            if place.startswith(f"{top}/") and os.path.exists(place):
                known[place[len(f"{top}/") :]] = match[2].lower()
                break
    return known


def _unescaped(name: str) -> str:
    told = {"n": "\n", "r": "\r", "\\": "\\"}
    return _ESCAPED.sub(lambda match: told.get(match[1], match[0]), name)


def _downloaded(top: Path, found: Mapping[str, int]) -> dict[str, str]:
    """What the hub's client noted of files that have not changed since: of large ones, the sha256.

    A note has three lines: the commit, what the hub calls the content, and when that was so.
    """
    known = {}
    for name in found:
        try:
            lines = (top / DOWNLOADS / "download" / f"{name}.metadata").read_text().splitlines()
            changed = (top / name).stat().st_mtime
            _, etag, at = lines[:3]
            if _SHA256.fullmatch(etag) and changed - _CHANGED_SECONDS <= float(at):
                known[name] = etag
        except (OSError, ValueError):
            # There is none, or not one that says anything: the file is read instead.
            continue
    return known


def _tidy(top: Path) -> None:
    """Remove the directories that nothing is in any more, but for what is not this user's to."""
    for place, _, _ in os.walk(top, topdown=False):
        try:
            if not os.listdir(place):
                os.rmdir(place)
        except OSError as error:
            if error.errno not in _STAYS:
                raise
