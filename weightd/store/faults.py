"""What the store refuses or fails, and the one place where OSError becomes one of ours.

The store raises `IoError` for a disk that misbehaves and `NoSpace` for a full
one; the cache turns the latter into ``disk-full`` with the budget's figures,
which the store does not know.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from weightd.errors import IoError, WeightdError
from weightd.model import Blob, GenerationId
from weightd.store.layout import Doomed

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoSpace(Exception):
    """The filesystem (ENOSPC) or a quota on it (EDQUOT) has no room; nothing was kept."""

    def __init__(self, call: str, error: str) -> None:
        super().__init__(f"{call} failed: {error}")
        self.call = call
        self.error = error


class AlreadyPublished(Exception):
    """The generation's directory exists already; the ingest can still be aborted."""

    def __init__(self, generation: GenerationId) -> None:
        super().__init__(f"{generation.key} with digest {generation.digest} is already published")
        self.generation = generation


class Use(NamedTuple):
    """What the kernel says of a model: its directory is held, or one of its files is used.

    ``reason`` is half a sentence.
    """

    kind: Literal["hold", "use"]
    reason: str


class SeizeRefused(Exception):
    """Some victims are in use; nothing moved and every lock was given back.

    ``refused`` tells the use of each.
    """

    def __init__(self, refused: Mapping[GenerationId, Use]) -> None:
        super().__init__("; ".join(f"{one.key}: {use.reason}" for one, use in refused.items()))
        self.refused = dict(refused)


class Stranded(Exception):
    """An eviction failed, and then its undoing: ``moved`` are out of reach and not to come back.

    ``failure`` says what the disk said.
    """

    def __init__(self, failure: IoError, moved: Sequence[Doomed]) -> None:
        super().__init__(failure.detail)
        self.failure = failure
        self.moved = tuple(moved)


class StillThere(Exception):
    """A publication failed, and then its undoing: the generation stands in ``models/``.

    ``failure`` says what the disk said, ``bytes`` are the blocks of its files.
    """

    def __init__(self, failure: IoError, generation: GenerationId, blobs: Iterable[Blob]) -> None:
        super().__init__(failure.detail)
        self.failure = failure
        self.generation = generation
        self.bytes = sum(blob.bytes for blob in blobs)


class PinsLost(Exception):
    """The pins that were acknowledged cannot be read.

    ``set_aside`` is the file the damaged database was renamed to, None when
    there was no database at all.
    """

    def __init__(self, reason: str, set_aside: str | None) -> None:
        where = "" if set_aside is None else f" (kept as {set_aside})"
        super().__init__(f"the record of pins was lost: {reason}{where}")
        self.reason = reason
        self.set_aside = set_aside


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a published model is no longer what was published, as half a sentence."""

    reason: str


def from_os(call: str, error: OSError) -> Exception:
    """The exception of ours that stands for ``error``, raised by ``call``."""
    words = error.strerror or str(error)
    if error.errno in _FULL:
        return NoSpace(call, words)
    return IoError(call=call, error=words)


@contextmanager
def reported(call: str) -> Iterator[None]:
    """Turn an OSError raised inside into `NoSpace` or `IoError` naming ``call``.

    An error of ours that happens to derive from OSError (`Stalled` is a
    TimeoutError) passes as it is.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, WeightdError):
            raise
        raise from_os(call, error) from error


@contextmanager
def reading(call: str) -> Iterator[None]:
    """The same for a call that takes no room: whatever its number, it is an `IoError`."""
    try:
        with reported(call):
            yield
    except NoSpace as full:
        raise IoError(call=full.call, error=full.error) from full


def printable(name: str) -> str:
    """A file name for a sentence: bytes that are not UTF-8 show as backslash escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
