"""Models called like weightd's own files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from weightd.model import GenerationId, Key, Manifest, content_digest
from weightd.store import Store


def publish(store: Store, key: Key, data: bytes) -> GenerationId:
    with store.begin(key) as ingest:
        entry = ingest.receive_file(
            key.last_segment,
            _Bytes(data),
            claim=lambda size: None,
            length=len(data),
            sha256=None,
        )
        manifest = Manifest(key, content_digest([entry]), (entry,), 1, 0.0)
        store.publish(ingest, manifest)
    return manifest.id


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readinto(self, buffer: memoryview) -> int:
        return self._file.readinto(buffer)


@pytest.mark.parametrize(
    "name", ["superseded", "manifest.json", "org/superseded", "a/b/manifest.json"]
)
@pytest.mark.parametrize("revision", [None, "v1", "superseded"])
def test_a_model_called_like_a_file_of_ours_is_found_again(
    root: Path, name: str, revision: str | None
) -> None:
    key = Key(name, revision)
    with Store.open(root) as store:
        id = publish(store, key, b"weights")
        assert (store.path_of(id) / key.last_segment).read_bytes() == b"weights"
    with Store.open(root) as store:
        (found,) = store.scan().models
        assert found.manifest.id == id
        assert not found.superseded
        store.mark_superseded(id)
        assert store.scan().models[0].superseded
        store.restore(found.manifest)
        assert not store.scan().models[0].superseded
        assert not hasattr(store.check(found.manifest), "reason")
