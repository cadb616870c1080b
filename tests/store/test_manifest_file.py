"""What a manifest says beside its files' content: where it came from, and what was told there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from weightd.model import FileEntry, Key, Manifest, content_digest
from weightd.store.manifest_file import Record, Stamp, Unreadable, decode, encode

FILES = (FileEntry("a", 1, "1" * 64), FileEntry("b/c", 2, "2" * 64))
STAMPS = (Stamp(10, 100), Stamp(11, 101))
PLAIN = Manifest(Key("m"), content_digest(FILES), FILES, 1, 0.0)
TOLD = replace(PLAIN, source="s3://b/m", revision="r", validators=(("b/c", '"etag"'),))


@pytest.mark.parametrize("manifest", [PLAIN, TOLD], ids=["by hand", "fetched"])
def test_it_reads_back(manifest: Manifest) -> None:
    assert decode(encode(Record(manifest, STAMPS))) == Record(manifest, STAMPS)


def test_one_without_them_says_nothing_of_them() -> None:
    """As an earlier release wrote it, and as one reads it that knows of no validators."""
    plain = json.loads(encode(Record(PLAIN, STAMPS)))
    told = json.loads(encode(Record(TOLD, STAMPS)))
    assert told["files"][1].pop("validator") == '"etag"'
    assert told["files"] == plain["files"]


def test_a_validator_is_a_text() -> None:
    told = json.loads(encode(Record(TOLD, STAMPS)))
    told["files"][0]["validator"] = 7
    with pytest.raises(Unreadable):
        decode(json.dumps(told).encode())
