"""A cache of the hub's own client on this disk: what is there, whole or not, and how it is taken.

::

    models--org--name/refs/main                      the commit that it names
    models--org--name/snapshots/<commit>/<file>      a link to its blob
    models--org--name/blobs/<sha256 or git's sha1>   a file, or a link into the store
    blobs/<2 digits>/<hash>                          the store that repositories share

A large file is called by its sha256, so nothing of it has to be read.  A small
one is called by git's sha1 of it: it is read, and held against that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from weightd.client.faults import Unsendable
from weightd.client.offering import Offer, Offering
from weightd.client.packing import given

_REPOSITORY: Final = "models--"
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_GIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)
_INDEX: Final = ".index.json"
_INDEX_BYTES_MAX: Final = 64 << 20
SMALL: Final = 16 << 20
"""A file of at most so many bytes that is kept is copied where its blocks cannot be shared."""

_LINKS_MAX: Final = 40
"""No more are followed by the kernel."""

_SHORTEST: Final = 6
"""So many digits of a commit are enough to name it."""


class Entry(NamedTuple):
    """One file of a snapshot: where its bytes are, and what the hub calls them; size None: gone."""

    name: str
    place: str
    blob: str | None
    size: int | None


class Snapshot(NamedTuple):
    """One revision of a repository; ``faults`` say why it is not whole, none when it is."""

    repository: str
    commit: str
    refs: tuple[str, ...]
    path: str
    files: tuple[Entry, ...]
    faults: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(file.size or 0 for file in self.files)


def snapshots(cache: str | os.PathLike[str]) -> list[Snapshot]:
    """Every revision of every model in a cache, by name.  Raises Unsendable when it is none."""
    top = Path(os.path.realpath(given(cache)))
    found: list[Snapshot] = []
    for name in sorted(_names(top)):
        if name.startswith(_REPOSITORY) and (top / name).is_dir():
            found += _repository(top, name)
    if not found and top.name.startswith(_REPOSITORY):
        raise Unsendable(str(cache), f"it is one repository; name the cache, {top.parent}")
    return found


def chosen(found: list[Snapshot], wanted: str, cache: str) -> Snapshot:
    """The snapshot that ``REPOSITORY[@REVISION]`` names.  Raises Unsendable.

    A revision is a ref or the beginning of a commit; without one it is main, or the only one.
    """
    repository, _, revision = wanted.partition("@")
    own = [one for one in found if one.repository == repository]
    if not own:
        raise Unsendable(cache, f"there is no {repository} in it; list it: weightd adopt {cache}")
    if revision:
        fit = [one for one in own if revision in one.refs] or [
            one for one in own if len(revision) >= _SHORTEST and one.commit.startswith(revision)
        ]
    else:
        fit = own if len(own) == 1 else [one for one in own if "main" in one.refs]
    if len(fit) != 1:
        there = ", ".join(" ".join((one.commit[:12], *one.refs)) for one in own)
        what = f"revision {revision}" if revision else "main"
        raise Unsendable(cache, f"{repository} has no one {what} in it; it has {there}")
    return fit[0]


def offered(
    cache: str | os.PathLike[str],
    snapshot: Snapshot,
    found: list[Snapshot],
    *,
    partial: bool = False,
    copy: bool = False,
) -> Offering:
    """A snapshot as an adoption offers it; what others use too is kept for them.

    With ``partial`` one that is not whole is taken as it is.  With ``copy`` large files are
    copied, too, that are kept and whose blocks cannot be shared.
    Raises Unsendable for one that is not whole, and for a file that is not what it is called.
    """
    there = [file for file in snapshot.files if file.size is not None]
    if not there or (snapshot.faults and not partial):
        reason = "; ".join(snapshot.faults) or "there is no file in it"
        raise Unsendable(snapshot.path, f"it is not whole: {reason}; --partial takes it as it is")
    used = Counter(place for one in found for place in {file.place for file in one.files})
    # Of files that are the same blob one takes it; the others are made of it before.
    takes = {file.place: file.name for file in there}
    files = tuple(
        _offer(file, keep=used[file.place] > 1 or takes[file.place] != file.name, copy=copy)
        for file in there
    )
    return Offering(
        files,
        lambda: _forget(Path(os.path.realpath(cache)), snapshot),
        source=f"hf://{snapshot.repository}",
        revision=snapshot.commit,
    )


# -- What is there ----------------------------------------------------------------------


def _names(place: Path) -> list[str]:
    try:
        return os.listdir(place)
    except OSError as error:
        raise Unsendable(str(place), error.strerror or str(error)) from error


def _repository(top: Path, name: str) -> Iterator[Snapshot]:
    home = top / name
    repository = name.removeprefix(_REPOSITORY).replace("--", "/")
    refs = list(_refs(home / "refs"))
    broken_off = [one for one in _names_if_any(home / "blobs") if one.endswith(".incomplete")]
    for commit in sorted(_names_if_any(home / "snapshots")):
        path = home / "snapshots" / commit
        if not path.is_dir() or path.is_symlink():
            continue
        files = tuple(sorted(_entries(top, path)))
        faults = list(_faults(path, files))
        if broken_off:
            faults.append(_broken_off(len(broken_off)))
        own = tuple(sorted(ref for ref, told in refs if told == commit))
        yield Snapshot(repository, commit, own, str(path), files, tuple(faults))


def _names_if_any(place: Path) -> list[str]:
    return _names(place) if place.is_dir() else []


def _refs(place: Path) -> Iterator[tuple[str, str]]:
    """Each ref and the commit that it names."""
    for directory, _, names in os.walk(place):
        for name in names:
            path = Path(directory) / name
            try:
                yield str(path.relative_to(place)), path.read_text().strip()
            except (OSError, ValueError):
                continue


def _entries(top: Path, snapshot: Path) -> Iterator[Entry]:
    """Each file of a snapshot with what its links lead to."""
    for directory, _, names in os.walk(snapshot):
        for name in names:
            link = Path(directory) / name
            blob = None
            if link.is_symlink():
                blob = os.path.basename(os.readlink(link))
            place = os.path.realpath(link)
            size = None
            if place.startswith(f"{top}/") and os.path.isfile(place):
                size = os.stat(place).st_size
            yield Entry(str(link.relative_to(snapshot)), place, blob, size)


def _faults(path: Path, files: tuple[Entry, ...]) -> Iterator[str]:
    gone = [file.name for file in files if file.size is None]
    if gone:
        yield f"{_some(gone)} {'is' if len(gone) == 1 else 'are'} missing: the blob is gone"
    here = {file.name for file in files}
    for file in files:
        if file.name.endswith(_INDEX) and file.size is not None:
            missing = sorted(set(_shards(path, file)) - here)
            if missing:
                are = "is" if len(missing) == 1 else "are"
                yield f"{_some(missing)} of {file.name} {are} not there"


def _broken_off(number: int) -> str:
    downloads = "1 download" if number == 1 else f"{number} downloads"
    return f"{downloads} of the repository {'was' if number == 1 else 'were'} broken off"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} files ({names[0]}, …)"


def _shards(path: Path, index: Entry) -> list[str]:
    """The files that an index of shards names, as they are called in the snapshot."""
    if (index.size or 0) > _INDEX_BYTES_MAX:
        return []
    try:
        told: Any = json.loads((path / index.name).read_bytes())
        names = {str(name) for name in told["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    folder = index.name.rpartition("/")[0]
    return [f"{folder}/{name}" if folder else name for name in names]


# -- How it is taken --------------------------------------------------------------------


def _offer(file: Entry, *, keep: bool, copy: bool) -> Offer:
    size = file.size or 0
    offer = Offer(file.name, file.place, size, keep=keep, copy=keep and (copy or size <= SMALL))
    if file.blob is not None and _SHA256.fullmatch(file.blob):
        return offer._replace(sha256=file.blob, trusted=True)
    if file.blob is not None and _GIT.fullmatch(file.blob):
        return offer._replace(sha256=_held_against(file))
    return offer


def _held_against(file: Entry) -> str:
    """The sha256 of a file whose name is git's sha1 of it.  Raises Unsendable when it is not."""
    try:
        content = Path(file.place).read_bytes()
    except OSError as error:
        raise Unsendable(file.place, error.strerror or str(error)) from error
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    if git.hexdigest() != file.blob:
        raise Unsendable(
            file.place, f"it is not what it is called; remove it, and fetch {file.name}"
        )
    return hashlib.sha256(content).hexdigest()


def _forget(top: Path, snapshot: Snapshot) -> None:
    """Leave the cache as if the revision had never been in it: no link that leads nowhere."""
    home = Path(snapshot.path).parents[1]
    for ref in snapshot.refs:
        (home / "refs" / ref).unlink(missing_ok=True)
    for place, _, names in os.walk(snapshot.path, topdown=False):
        for name in names:
            _forget_file(top, Path(place) / name)
        os.rmdir(place)
    (home / "trees" / f"{snapshot.commit}.json").unlink(missing_ok=True)
    if not _names_if_any(home / "snapshots"):
        _remove_empty(home)


def _forget_file(top: Path, link: Path) -> None:
    """A file of the snapshot, and on its way to the bytes what leads nowhere now."""
    hops = [link]
    # Some lead back to themselves.
    while hops[-1].is_symlink() and len(hops) <= _LINKS_MAX:
        hops.append(Path(os.path.abspath(hops[-1].parent / os.readlink(hops[-1]))))
    link.unlink()
    if hops[-1].exists():
        return
    for hop in hops[1:]:
        if hop.is_relative_to(top):
            hop.unlink(missing_ok=True)
            # The store's own list of who uses it.
            hop.with_name(f"{hop.name}.refs").unlink(missing_ok=True)


def _remove_empty(home: Path) -> None:
    """A repository of which nothing is left, but for what says that files are not on the hub."""
    for place, _, names in os.walk(home / ".no_exist", topdown=False):
        for name in names:
            (Path(place) / name).unlink()
        os.rmdir(place)
    if any(names for _, _, names in os.walk(home)):
        return
    for place, _, _ in os.walk(home, topdown=False):
        os.rmdir(place)
