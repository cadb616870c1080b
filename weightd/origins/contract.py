"""What every origin does: say what there is, then give bytes from any offset.

An origin is made for one reference and used for one listing and the reads that
follow it.  `Origin.list` and `Stream.readinto` block, in threads; several reads
of one origin may run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, runtime_checkable

from weightd.model import Digest

OriginKind: TypeAlias = Literal["hf", "s3", "gs", "az", "https", "http", "file"]

ORIGIN_KINDS: Final[tuple[OriginKind, ...]] = ("hf", "s3", "gs", "az", "https", "http", "file")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file as the origin tells of it, before any of its bytes is asked for.

    ``path`` is where it will stand below the model's directory; ``location`` is
    the origin's own word for where it is there, and means nothing to others.
    ``bytes`` is None only where the origin does not tell a length.  ``sha256``
    is set only where the origin states a sha256 of the content.  ``validator``
    changes whenever the content does (a strong ETag, an object's version), or
    is None where the origin has none.
    """

    path: str
    bytes: int | None
    location: str
    sha256: Digest | None = None
    validator: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What an origin has under a reference at one moment, in order of path.

    ``revision`` is what a mutable reference resolved to: a commit where the
    origin has commits, else a digest of paths, sizes and validators, or None
    where nothing tells one state from the next.
    """

    files: tuple[RemoteFile, ...]
    revision: str | None

    @property
    def bytes(self) -> int | None:
        """The sum of the lengths, None where one is not told."""
        lengths = [file.bytes for file in self.files]
        return None if None in lengths else sum(length or 0 for length in lengths)


class Stream(Protocol):
    """Bytes of one file from one offset on.  One thread reads it."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of ``buffer``; the bytes read, 0 at the end of what was asked for.

        Raises OriginFailed, OriginTimeout or OriginChanged.
        """
        ...

    def close(self) -> None:
        """End it, from any thread and at any time; a reader that waits raises OriginFailed soon."""
        ...


@runtime_checkable
class FileStream(Stream, Protocol):
    """A stream of a file that is open here, whose bytes the kernel can move by itself."""

    def lend(self, take: Callable[[int, int, int], None], most: int) -> int:
        """Have ``take(descriptor, offset, size)`` take the next bytes; how many it was given.

        Raises what ``take`` raises, the stream being where it was, and as `readinto`:
        OriginChanged may then be of bytes that were taken.
        """
        ...


class Origin(Protocol):
    """One reference at one origin.  Made by `weightd.origins.open_origin`."""

    kind: OriginKind

    def list(self) -> Listing:
        """What there is; no byte of any file moves.

        Raises InvalidRequest for a reference that leaves open what it means (the
        reason lists the choices), OriginFailed (with ``retryable`` saying
        whether the same wish can succeed later: not where nothing is there,
        which a mirror may still have) or OriginTimeout.
        """
        ...

    def open(self, file: RemoteFile, start: int = 0, stop: int | None = None) -> Stream:
        """Ask for the bytes ``start <= offset < stop`` of a file of this origin's listing.

        The bytes are those of the content that was listed: OriginChanged where
        ``validator``, size or revision is no longer the same.  OriginFailed
        with ``ranges=False`` where ``start`` is not 0 and the origin gives no
        ranges.  Raises OriginTimeout.
        """
        ...

    def close(self) -> None:
        """Let connections go; whoever reads in another thread fails soon.  Any number of times."""
        ...


class Closing(Protocol):
    """An origin or stream as a context."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds on waiting for an origin, in seconds: to connect, and between two bytes."""

    connect: float = 10.0
    progress: float = 30.0


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """A secret that a fetch may name, and the absolute path of the file that holds it.

    ``sources`` are beginnings of the references that it is shown to; with none
    it is shown to any, and only the admin socket may name it.
    """

    name: str
    path: str
    sources: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.name}={self.path}"
        return f"{told} (for {' '.join(self.sources)})" if self.sources else told


@dataclass(frozen=True, slots=True)
class Trust:
    """What the operator allows and provides, for every origin alike.

    ``allowed`` are prefixes that a reference must begin with (empty: any but
    ``file://``); ``import_roots`` the directories below which ``file://`` may
    read; ``ca_file`` replaces the system's certificates; ``credentials`` are
    the secrets that may be named.
    """

    allowed: Sequence[str] = ()
    import_roots: Sequence[str] = ()
    ca_file: str | None = None
    credentials: tuple[CredentialFile, ...] = ()

    def credential(self, name: str) -> CredentialFile | None:
        """The one of that name."""
        return next((one for one in self.credentials if one.name == name), None)
