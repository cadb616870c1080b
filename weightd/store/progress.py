"""What of each part of an arrival is here, so that the next start can go on.

The file ``.progress`` beside the parts has slots of fixed size, each written by
one ``pwrite`` and rewritten in place as its span grows, so that it stays small
whatever arrives.  A slot says which bytes of which path are in the file:

- in the page cache, which holds while this boot lasts, a killed process or not;
- or on stable storage, written only after an fsync of the part, which holds always.

A torn or lost slot loses what it said and nothing else: each has a checksum, and
none depends on another.  Only giving up what is here does, see `Progress.forget`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
import zlib
from typing import Final

from weightd.store import tree
from weightd.store.spans import Spans

NAME: Final = ".progress"
"""No key has a dot ahead, so it never stands where a model's directory does."""

BYTES_MAX: Final = 64 << 20
"""A longer one was not written by weightd: 10,000 files with a hundred spans each need no more."""

# Part, boot (zeros: any), edition of the part, start, stop; then the checksum.  A power of two,
# so that no slot lies across two sectors or pages: a write tears none.
_SLOT: Final = struct.Struct("<16s16sI4xQQ4x")
_CHECKSUM: Final = struct.Struct("<I")
_SIZE: Final = 64

_ALWAYS: Final = bytes(16)


def is_sound(directory: int) -> bool:
    """Whether the file in an arrival's ``directory`` may be read, if there is one.

    Raises OSError.
    """
    try:
        status = os.stat(NAME, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return _is_ours(status)


def _is_ours(status: os.stat_result) -> bool:
    """Not a fifo, nor another name of a file that is somebody else's."""
    lone = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return lone and status.st_size <= BYTES_MAX


def _brief(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


class _Told:
    """What the file says of one part: the spans of its last edition."""

    def __init__(self) -> None:
        self.edition = 0
        self.spans = Spans()


class Progress:
    """The file of one arrival.  Every method but `close` may be called from any thread.

    The methods that write raise OSError.
    """

    def __init__(self, directory: int, boot: str) -> None:
        """Open or make it in the arrival's ``directory``.  Raises OSError."""
        self._boot = _brief(boot)
        self._adding = threading.Lock()
        self._briefs: dict[str, bytes] = {}
        self._told: dict[bytes, _Told] = {}
        self._slots: dict[tuple[bytes, bytes, int, int], int] = {}
        made = not tree.exists(NAME, directory)
        flags = tree.CREATE_FLAGS if made else tree.REWRITE_FLAGS
        self._descriptor = os.open(NAME, flags, 0o600, dir_fd=directory)
        try:
            self._count = 0 if made else self._load()
        except OSError:
            os.close(self._descriptor)
            raise

    def of(self, path: str) -> list[tuple[int, int]]:
        """What the earlier runs left of a part, as far as it can be relied on."""
        told = self._told.get(_brief(path))
        return [] if told is None else list(told.spans)

    def here(self, path: str, start: int, stop: int) -> None:
        """Say that a span of the part was written, for as long as the page cache lasts."""
        part = self._briefs.get(path)
        if part is None:
            part = self._briefs[path] = _brief(path)
        self._say(part, self._boot, start, stop)

    def flushed(self, path: str, spans: Spans) -> None:
        """Say that spans of the part are on stable storage."""
        part = _brief(path)
        for start, stop in spans:
            self._say(part, _ALWAYS, start, stop)

    def forget(self, path: str) -> None:
        """Take back all that was said of the part, for good, before its bytes go.

        What is said later is of a new edition, and what was said earlier of none
        that counts, whichever slots a power loss keeps.
        """
        part = _brief(path)
        with self._adding:
            told = self._told.setdefault(part, _Told())
            told.edition += 1
            told.spans.clear()
        self._say(part, _ALWAYS, 0, 0)
        self.flush()

    def flush(self) -> None:
        """Bring what was said to stable storage."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._descriptor)

    def _say(self, part: bytes, boot: bytes, start: int, stop: int) -> None:
        with self._adding:
            edition = self._told.setdefault(part, _Told()).edition
            # A span that grew takes the place of what it was.
            slot = self._slots.setdefault((part, boot, edition, start), self._count)
            if slot == self._count:
                self._count += 1
            data = _SLOT.pack(part, boot, edition, start, stop)
            data += _CHECKSUM.pack(zlib.crc32(data))
            if os.pwrite(self._descriptor, data, slot * _SIZE) != _SIZE:
                raise OSError(None, "a record was cut short")

    def _load(self) -> int:
        """Read what there is; the number of slots."""
        status = os.fstat(self._descriptor)
        if not _is_ours(status):
            raise OSError(None, f"{NAME} is not what weightd wrote")
        data = tree.read_whole(self._descriptor, status.st_size)
        count = -(-len(data) // _SIZE)
        for index in range(len(data) // _SIZE):
            slot = data[index * _SIZE : (index + 1) * _SIZE]
            if zlib.crc32(slot[: _SLOT.size]) != _CHECKSUM.unpack_from(slot, _SLOT.size)[0]:
                continue
            part, boot, edition, start, stop = _SLOT.unpack_from(slot)
            self._enter(part, boot, edition, start, stop)
        return count

    def _enter(self, part: bytes, boot: bytes, edition: int, start: int, stop: int) -> None:
        told = self._told.setdefault(part, _Told())
        if edition > told.edition:
            told.edition = edition
            told.spans.clear()
        if edition == told.edition and boot in (_ALWAYS, self._boot):
            told.spans.add(start, stop)
