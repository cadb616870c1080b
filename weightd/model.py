"""The words of the cache: keys, files, manifests, generations and pins.

Everything here is frozen and does no I/O.  A value that exists is valid: the
``parse`` functions and constructors check, and say which part is wrong.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from weightd.errors import InvalidKey, InvalidRequest
from weightd.keys import key_fault

FILE_PATH_BYTES_MAX: Final = 1024
FILE_SEGMENT_BYTES_MAX: Final = 255
FILE_DEPTH_MAX: Final = 32
FILES_MAX: Final = 10_000
"""Several times what the largest published models have; each costs a descriptor to evict."""

OWN_HOLDERS: Final = "weightd:"
"""How the holders begin in whose name weightd itself pins."""

# ``\Z`` and fullmatch, never ``$``: a trailing newline is not part of a name.
_HOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

Digest: TypeAlias = str
"""64 lower-case hexadecimal digits of a sha256."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a client calls a model: ``name`` or ``name@revision``; keys sort as they are written."""

    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a key that has already been percent-decoded.

        Raises InvalidKey naming the offending part.
        """
        fault = key_fault(text)
        if fault is not None:
            raise InvalidKey(key=text, reason=fault)
        name, at, revision = text.partition("@")
        return cls(name, revision if at else None)

    @property
    def last_segment(self) -> str:
        """The model's own name, which the path handed out ends in."""
        return self.name.rpartition("/")[2]

    def __lt__(self, other: Key) -> bool:
        return str(self) < str(other)

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


class GenerationId(NamedTuple):
    """One published copy of a key, named by the digest of its content."""

    key: Key
    digest: Digest


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """One file of a model: its path below the model's directory, size and sha256."""

    path: str
    bytes: int
    sha256: Digest


class Blob(NamedTuple):
    """One file's content on disk, which several generations may share by hard link.

    The sha256 stands beside the inode so that a root copied to another
    filesystem, whose recorded inodes are stale, cannot confuse two contents.
    ``bytes`` is what the file occupies in whole filesystem blocks.
    """

    inode: int
    sha256: Digest
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A generation's record, as it stands in ``manifest.json``.

    ``sequence`` grows with every publication on this node, so that after a
    crash between a publication and the retirement of its predecessor the
    newer of two is known without trusting a clock.  ``published_at`` is in
    seconds since the epoch.  ``revision`` is what a mutable reference at the
    origin resolved to.  ``validators`` are what ``source`` told of its files
    then, by path: of a file of which it tells the same later, this is still
    the content.
    """

    key: Key
    digest: Digest
    files: tuple[FileEntry, ...]
    sequence: int
    published_at: float
    source: str | None = None
    revision: str | None = None
    validators: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> GenerationId:
        return GenerationId(self.key, self.digest)

    @property
    def bytes(self) -> int:
        """The sum of the files' lengths, in bytes as a user counts them."""
        return sum(entry.bytes for entry in self.files)


@dataclass(frozen=True, slots=True)
class Pin:
    """One holder's claim on one generation.

    ``ttl`` is the length of a lease in seconds, None for a pin without one.
    ``until`` is when a lease lapses unless it is renewed.  ``forever`` pins
    outlive a reboot of the node.  Times are in seconds since the epoch.  ``uid``
    is the user whom the kernel saw take it, None for one whom nobody asked.
    """

    holder: str
    generation: GenerationId
    since: float
    ttl: float | None = None
    until: float | None = None
    forever: bool = False
    uid: int | None = None


EvictionReason = Literal["admission", "budget", "disk", "request", "damage"]


@dataclass(frozen=True, slots=True)
class Eviction:
    """One line of the eviction journal: what went, when, why, and for whom.

    ``beneficiary`` is the key whose arrival needed the room.  ``idle`` is how
    many seconds the model had gone unused; ``at`` is in seconds since the epoch.
    """

    sequence: int
    key: Key
    digest: Digest
    bytes: int
    reason: EvictionReason
    at: float
    idle: float
    beneficiary: Key | None = None


def parse_holder(text: str) -> str:
    """Check a holder's name.  Raises InvalidRequest."""
    if not _HOLDER.fullmatch(text):
        raise InvalidRequest(
            what="holder",
            reason=(
                f"{text!r} is not a letter or digit followed by at most 127 letters, digits, "
                "'.', '_', ':', '@' or '-'"
            ),
        )
    return text


def parse_callers_holder(text: str) -> str:
    """Check the name that a caller gives a holder.  Raises InvalidRequest, also for our own."""
    if parse_holder(text).startswith(OWN_HOLDERS):
        raise InvalidRequest(
            what="holder",
            reason=(
                f"{text!r} begins with {OWN_HOLDERS}, as only the pins do that weightd takes and "
                "lets go by itself: what the settings preload is pinned as long as they say"
            ),
        )
    return text


def parse_sha256(text: str) -> Digest:
    """Check a sha256 in hexadecimal; upper case is folded.  Raises InvalidRequest."""
    digest = text.lower()
    if not _SHA256.fullmatch(digest):
        raise InvalidRequest(what="sha256", reason=f"{text!r} is not 64 hexadecimal digits")
    return digest


def file_path_fault(path: str) -> str | None:
    """Say why ``path`` cannot name a file inside a model, or None when it can.

    The rule keeps every file below the model's directory on every filesystem,
    and every path printable on one line.
    """
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it is not valid UTF-8"
    segments = path.split("/")
    if len(encoded) > FILE_PATH_BYTES_MAX:
        return f"it is longer than {FILE_PATH_BYTES_MAX} bytes"
    if path.startswith("/"):
        return "it is absolute"
    if _CONTROL.search(path) or len(path.splitlines()) > 1:
        return "it contains a control character or a line break"
    if len(segments) > FILE_DEPTH_MAX:
        return f"it is deeper than {FILE_DEPTH_MAX} directories"
    for segment in segments:
        if segment in ("", ".", ".."):
            return f"it has the segment {segment!r}"
        if len(segment.encode()) > FILE_SEGMENT_BYTES_MAX:
            return f"a segment is longer than {FILE_SEGMENT_BYTES_MAX} bytes"
    return None


def content_digest(files: Iterable[FileEntry]) -> Digest:
    """The digest of a model: sha256 over one line per file, in order of path.

    A line is ``<sha256> <bytes> <path>\\n``; paths hold no newline, so the list
    reads back unambiguously.  Equal digests mean equal content on every node.

    >>> content_digest([FileEntry("a", 0, "0" * 64)])[:16]
    '9b847b273d06db3e'
    """
    listing = hashlib.sha256()
    for entry in sorted(files):
        listing.update(f"{entry.sha256} {entry.bytes} {entry.path}\n".encode())
    return listing.hexdigest()
