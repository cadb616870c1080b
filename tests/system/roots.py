"""Roots made by the store's own functions, so that a test starts with what it needs."""

from __future__ import annotations

import time
from pathlib import Path

from tests.system.models import Content
from weightd.model import GenerationId, Key, Manifest, Pin
from weightd.store import PinChange, PinDatabase, Store


class Bytes:
    """A body that is all here already."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count


def publish(store: Store, key: str, content: Content, sequence: int) -> GenerationId:
    """Publish a model as an arrival does; a later ``sequence`` counts as used later."""
    with store.begin(Key.parse(key)) as ingest:
        files = tuple(
            ingest.receive_file(
                path, Bytes(data), claim=lambda _: None, length=len(data), sha256=None
            )
            for path, data in content.files
        )
        manifest = Manifest(
            key=Key.parse(key),
            digest=content.digest,
            files=files,
            sequence=sequence,
            # Before any use by the daemon that is to come.
            published_at=time.time() - 1000.0 + sequence,
        )
        store.publish(ingest, manifest)
    return manifest.id


def pin(store: Store, holder: str, generation: GenerationId) -> None:
    """Put a pin on stable storage."""
    database = PinDatabase.open(store.state_path)
    try:
        taken = Pin(holder, generation, time.time(), None, None, False)
        database.apply([PinChange.put(taken, "boot")])
    finally:
        database.close()


def open_store(root: Path) -> Store:
    """The root of a daemon that does not run; close it before one does."""
    return Store.open(root)
