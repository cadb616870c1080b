"""The notes that unfinished fetches are found by: written, read strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weightd.cache.fetching.job import Job
from weightd.cache.fetching.stored import decode_note, encode_note
from weightd.model import Key
from weightd.origins.contract import Listing, RemoteFile

SOURCE = "https://o/m.json"
LISTING = Listing(
    (
        RemoteFile("a", None, "", None, None),
        RemoteFile("é/b", 3, "", "0" * 64, '"e"\ud800'),
    ),
    "r1",
)


def encoded() -> bytes:
    job = Job(Key("m"), (SOURCE,), None, None, created_at=0.0, order=0, asked_at=0.0)
    return encode_note(job, LISTING)


def test_it_says_what_was_listed() -> None:
    assert decode_note(encoded()) == (SOURCE, LISTING)


def test_it_is_hardly_longer_than_what_was_listed() -> None:
    job = Job(Key("m"), (SOURCE,), None, None, created_at=0.0, order=0, asked_at=0.0)
    files = tuple(RemoteFile(f"{i}" + "é" * 125, 0, "", None, None) for i in range(1000))
    told = sum(len(file.path.encode()) for file in files)
    assert len(encode_note(job, Listing(files, None))) < told + 1000 * 60


@pytest.mark.parametrize("field", ["source", "revision", "files"])
@pytest.mark.parametrize("value", [7, [1], {"a": 1}, True])
def test_one_of_other_types_is_none(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match="note"):
        decode_note(json.dumps(json.loads(encoded()) | {field: value}).encode())


@pytest.mark.parametrize("field", ["path", "bytes", "sha256", "validator"])
@pytest.mark.parametrize("value", [-7, [1], {"a": 1}, True, 1.5])
def test_a_file_of_other_types_is_none(field: str, value: Any) -> None:
    fields = json.loads(encoded())
    fields["files"][0][field] = value
    with pytest.raises(ValueError, match="note"):
        decode_note(json.dumps(fields).encode())


@pytest.mark.parametrize("note", [b"", b"[", b"[]", b"7", b"\xff", b"[" * 200_000, b"{}"])
def test_what_is_no_note_is_refused(note: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_note(note)
