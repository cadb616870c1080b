"""``manifest.json``: a generation's record on disk, and its strict reader.

Beside what `Manifest` says, each file has the inode it was written as, so that
a start needs to open one file per model and stat none, and the time of its last
write.  Both are hints until `check` has seen the files: a root copied elsewhere
has other inodes, and then its times say nothing either.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Final, NamedTuple, Self

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

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_INTEGER_MAX: Final = (1 << 63) - 1


class Stamp(NamedTuple):
    """How a file stood on disk when it was published: its inode, its mtime in nanoseconds."""

    inode: int
    written_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        return cls(status.st_ino, status.st_mtime_ns)


class Record(NamedTuple):
    """What ``manifest.json`` says; ``stamps`` go with ``manifest.files``, one each."""

    manifest: Manifest
    stamps: tuple[Stamp, ...]

    def blobs(self, block: int) -> tuple[Blob, ...]:
        """One blob per file, in the order of ``manifest.files``."""
        return tuple(
            Blob(stamp.inode, entry.sha256, round_up(entry.bytes, block))
            for entry, stamp in zip(self.manifest.files, self.stamps, strict=True)
        )


class Unreadable(Exception):
    """Why a manifest cannot be trusted, as half a sentence."""


def encode(record: Record) -> bytes:
    """The bytes of ``manifest.json``."""
    manifest = record.manifest
    files: list[dict[str, object]] = [
        {"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256, **stamp._asdict()}
        for entry, stamp in zip(manifest.files, record.stamps, strict=True)
    ]
    validators = dict(manifest.validators)
    for file in files:
        if (validator := validators.get(str(file["path"]))) is not None:
            file["validator"] = validator
    fields = {
        "format": layout.FORMAT_VERSION,
        "key": str(manifest.key),
        "digest": manifest.digest,
        "sequence": manifest.sequence,
        "published_at": manifest.published_at,
        "source": manifest.source,
        "revision": manifest.revision,
        "files": files,
    }
    return json.dumps(fields, indent=1, ensure_ascii=False).encode() + b"\n"


def read(name: str, parent: int) -> Record:
    """What the generation directory ``name`` says of itself.

    Opens one file; that ``name`` is a directory and no link is known to the
    caller.  Raises Unreadable, or OSError for a disk that fails.
    """
    own = layout.own_name(layout.MANIFEST, name)
    descriptor = tree.open_regular(parent, f"{name}/{own}", checked=True)
    if descriptor is None:
        raise Unreadable("manifest.json is missing, or not a regular file")
    try:
        size = os.fstat(descriptor).st_size
        if size > BYTES_MAX:
            raise Unreadable(f"manifest.json has {size} bytes, more than {BYTES_MAX}")
        data = tree.read_whole(descriptor, size)
    finally:
        os.close(descriptor)
    record = decode(data)
    if layout.generation_name(record.manifest.id) != name:
        manifest = record.manifest
        raise Unreadable(f"manifest.json is that of {manifest.key} {manifest.digest[:16]}")
    return record


def decode(data: bytes) -> Record:
    """Read what `encode` wrote, trusting none of it.  Raises Unreadable."""
    try:
        record = _decode_record(json.loads(data))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidKey | InvalidRequest):
            raise Unreadable(f"manifest.json: {error.reason}") from error
        raise Unreadable(f"manifest.json is not a manifest: {error!r:.200}") from error
    if content_digest(record.manifest.files) != record.manifest.digest:
        raise Unreadable("manifest.json: its digest is not that of its files")
    return record


def _decode_record(fields: Any) -> Record:
    listed = fields["files"]
    if not isinstance(listed, list) or not listed:
        raise ValueError("files")
    manifest = Manifest(
        key=Key.parse(_text(fields["key"])),
        digest=parse_sha256(_text(fields["digest"])),
        files=tuple([_decode_file(file) for file in listed]),
        sequence=_count(fields["sequence"]),
        published_at=_seconds(fields["published_at"]),
        source=_optional_text(fields.get("source")),
        revision=_optional_text(fields.get("revision")),
        validators=tuple(
            (file["path"], _text(file["validator"])) for file in listed if "validator" in file
        ),
    )
    if len({entry.path for entry in manifest.files}) != len(listed):
        raise ValueError("a path is listed twice")
    stamps = [Stamp(_count(file["inode"]), _count(file["written_ns"])) for file in listed]
    return Record(manifest, tuple(stamps))


def _decode_file(file: Any) -> FileEntry:
    path, sha256 = _text(file["path"]), _text(file["sha256"])
    # Ten thousand models are read at a start, and nearly every name is plain.
    if not _PLAIN.fullmatch(path) and (fault := file_path_fault(path)) is not None:
        raise ValueError(f"path {path!r:.100}: {fault}")
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"sha256 {sha256!r:.100}")
    return FileEntry(path, _count(file["bytes"]), sha256)


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
