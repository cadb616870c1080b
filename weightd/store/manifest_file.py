"""``manifest.json``: a generation's record on disk, and its strict reader.

Beside what `Manifest` says, each file has the inode it was written as, so that
a start needs to open one file per model and stat none.  The inodes are hints
until `check` has seen the files: a root copied elsewhere has others.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from typing import Any, Final

from weightd.errors import InvalidKey, InvalidRequest
from weightd.model import (
    Blob,
    FileEntry,
    Key,
    Manifest,
    content_digest,
    file_path_fault,
    parse_sha256,
)
from weightd.store import layout, tree
from weightd.units import round_up

BYTES_MAX: Final = 64 << 20
"""A longer manifest was not written by weightd."""

_INTEGER_MAX: Final = (1 << 63) - 1


class Unreadable(Exception):
    """Why a manifest cannot be trusted, as half a sentence."""


def encode(manifest: Manifest, inodes: Sequence[int]) -> bytes:
    """The bytes of ``manifest.json``; ``inodes`` go with ``manifest.files``, one each."""
    files = [
        {"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256, "inode": inode}
        for entry, inode in zip(manifest.files, inodes, strict=True)
    ]
    record = {
        "format": layout.FORMAT_VERSION,
        "key": str(manifest.key),
        "digest": manifest.digest,
        "sequence": manifest.sequence,
        "published_at": manifest.published_at,
        "source": manifest.source,
        "revision": manifest.revision,
        "files": files,
    }
    return json.dumps(record, indent=1).encode() + b"\n"


def blobs(manifest: Manifest, inodes: Sequence[int], block: int) -> tuple[Blob, ...]:
    """One blob per file, in the order of ``manifest.files``."""
    return tuple(
        Blob(inode, entry.sha256, round_up(entry.bytes, block))
        for entry, inode in zip(manifest.files, inodes, strict=True)
    )


def read(name: str, parent: int) -> tuple[Manifest, tuple[int, ...]]:
    """The manifest of the generation directory ``name``, and the inodes it records.

    Opens one file.  Raises Unreadable, or OSError for a disk that fails.
    """
    try:
        descriptor = os.open(f"{name}/{layout.MANIFEST}", tree.READ_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        raise Unreadable("manifest.json is missing") from None
    except OSError as error:
        raise Unreadable(f"manifest.json cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("manifest.json is not a regular file")
        if status.st_size > BYTES_MAX:
            raise Unreadable(f"manifest.json has {status.st_size} bytes, more than {BYTES_MAX}")
        data = _read_whole(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    manifest, inodes = decode(data)
    if layout.generation_name(manifest.id) != name:
        raise Unreadable(f"manifest.json is that of {manifest.key} {manifest.digest[:16]}")
    return manifest, inodes


def _read_whole(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size + 1)
    while len(data) < size:
        more = os.read(descriptor, size + 1 - len(data))
        if not more:
            break
        data += more
    return data


def decode(data: bytes) -> tuple[Manifest, tuple[int, ...]]:
    """Read what `encode` wrote, trusting none of it.  Raises Unreadable."""
    try:
        record = json.loads(data)
        manifest, inodes = _decode_record(record)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidKey | InvalidRequest):
            raise Unreadable(f"manifest.json: {error.reason}") from error
        raise Unreadable(f"manifest.json is not a manifest: {error!r:.200}") from error
    if content_digest(manifest.files) != manifest.digest:
        raise Unreadable("manifest.json: its digest is not that of its files")
    return manifest, inodes


def _decode_record(record: Any) -> tuple[Manifest, tuple[int, ...]]:
    listed = record["files"]
    if not isinstance(listed, list) or not listed:
        raise ValueError("files")
    manifest = Manifest(
        key=Key.parse(_text(record["key"])),
        digest=parse_sha256(_text(record["digest"])),
        files=tuple(_decode_file(file) for file in listed),
        sequence=_count(record["sequence"]),
        published_at=_seconds(record["published_at"]),
        source=_optional_text(record.get("source")),
        revision=_optional_text(record.get("revision")),
    )
    if len({entry.path for entry in manifest.files}) != len(listed):
        raise ValueError("a path is listed twice")
    return manifest, tuple(_count(file["inode"]) for file in listed)


def _decode_file(file: Any) -> FileEntry:
    path = _text(file["path"])
    if (fault := file_path_fault(path)) is not None:
        raise ValueError(f"path {path!r:.100}: {fault}")
    return FileEntry(path, _count(file["bytes"]), parse_sha256(_text(file["sha256"])))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is not a text")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _INTEGER_MAX:
        raise TypeError(f"{value!r:.100} is not a count")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e12:
        raise TypeError(f"{value!r:.100} is not a time")
    return float(value)
