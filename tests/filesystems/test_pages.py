"""What an arrival that nobody waits for leaves in memory, where a filesystem can let go of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.filesystems.disks import MB, kind_of
from tests.store.support import Ledger
from weightd.model import Key
from weightd.store import Store, pace, pages

STEP: Final = MB
SIZE: Final = 32 * MB


def test_it_leaves_what_cannot_go_elsewhere(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WINDOW", 4 * MB)
    content, ledger = os.urandom(SIZE), Ledger()
    with Store.open(disk / "root") as store, store.begin(Key("m")) as ingest:
        part = ingest.part("w", SIZE, claim=ledger.claim, wrote=ledger.wrote)
        for at in range(0, SIZE, STEP):
            part.write(at, memoryview(content)[at : at + STEP])
        part.seal(None)
        descriptor = os.open("w", os.O_RDONLY, dir_fd=ingest.content)
        try:
            left = pages.cached(descriptor, 0, SIZE)
            assert os.pread(descriptor, SIZE, 0) == content
        finally:
            os.close(descriptor)
    # A file in memory is nowhere else.
    assert left == (SIZE if kind_of(disk) == "tmpfs" else 0)
