"""What an arrival leaves in memory, as the kernel counts it."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.support import Bytes, Ledger
from weightd.model import Key
from weightd.store import Store, pace, pages
from weightd.store.pace import ScatteredWriteBack, WriteBack

STEP = 1 << 20
WINDOW = 4 << 20
SIZE = 8 * WINDOW
CONTENT = os.urandom(SIZE)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WINDOW", WINDOW)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """Open, and empty."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def in_memory(descriptor: int, start: int = 0, stop: int = SIZE) -> int:
    return pages.cached(descriptor, start, stop - start)


def told(descriptor: int, back: WriteBack | ScatteredWriteBack, start: int, stop: int) -> None:
    """Write a stretch, step by step, and tell of each."""
    for at in range(start, stop, STEP):
        os.pwrite(descriptor, CONTENT[at : at + STEP], at)
        if isinstance(back, WriteBack):
            back.reached(at + STEP)
        else:
            back.wrote(at, at + STEP)


KINDS = pytest.mark.parametrize("kind", [WriteBack, ScatteredWriteBack])


@KINDS
def test_what_is_needed_no_more_goes_on_the_way(
    file: int, kind: type[WriteBack | ScatteredWriteBack]
) -> None:
    back = kind(file, lambda: SIZE)
    most = 0
    for at in range(0, SIZE, WINDOW):
        told(file, back, at, at + WINDOW)
        most = max(most, in_memory(file, 0, at + WINDOW))
    assert most <= 2 * WINDOW
    os.fsync(file)
    pages.forget(file)
    assert in_memory(file) == 0
    assert os.pread(file, SIZE, 0) == CONTENT


@KINDS
def test_what_is_needed_stays(file: int, kind: type[WriteBack | ScatteredWriteBack]) -> None:
    told(file, kind(file), 0, SIZE)
    assert in_memory(file) == SIZE


@KINDS
def test_what_is_not_hashed_stays_until_it_is(
    file: int, kind: type[WriteBack | ScatteredWriteBack]
) -> None:
    hashed = 3 * STEP
    back = kind(file, lambda: hashed)
    told(file, back, 0, 4 * WINDOW)
    # The kernel has in memory as one what is there of both, and lets go of neither.
    assert in_memory(file, hashed, 4 * WINDOW) == 4 * WINDOW - hashed
    assert in_memory(file, 0, hashed) <= STEP
    hashed = 4 * WINDOW
    told(file, back, 4 * WINDOW, 6 * WINDOW)
    assert in_memory(file, 0, 4 * WINDOW) == 0


@KINDS
def test_what_comes_once_somebody_waits_stays(
    file: int, kind: type[WriteBack | ScatteredWriteBack]
) -> None:
    needed = False
    back = kind(file, lambda: 0 if needed else SIZE)
    told(file, back, 0, 4 * WINDOW)
    needed = True
    told(file, back, 4 * WINDOW, SIZE)
    assert in_memory(file, 4 * WINDOW) == SIZE - 4 * WINDOW
    assert in_memory(file, 0, 2 * WINDOW) == 0


def test_streams_side_by_side_leave_nothing(file: int) -> None:
    hashed = 0
    back = ScatteredWriteBack(file, lambda: hashed)
    os.ftruncate(file, SIZE)
    halves = ((0, SIZE // 2), (SIZE // 2, SIZE))
    streams = [threading.Thread(target=told, args=(file, back, *half)) for half in halves]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    assert in_memory(file) == SIZE
    hashed = SIZE
    # Two windows more tell of what was written before them.
    told(file, back, 0, WINDOW)
    told(file, back, 0, WINDOW)
    os.fsync(file)
    assert in_memory(file, WINDOW) == 0


def test_memory_itself_lets_go_of_nothing(file: int) -> None:
    """As on tmpfs, where a file is its pages."""
    descriptor = os.memfd_create("weightd-test")
    try:
        told(descriptor, WriteBack(descriptor, lambda: SIZE), 0, SIZE)
        pages.forget(descriptor)
        assert os.pread(descriptor, SIZE, 0) == CONTENT
        assert in_memory(descriptor) == SIZE
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("size", [100, WINDOW, SIZE])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_part_leaves_what_somebody_waits_for(store: Store, size: int, awaited: bool) -> None:
    content, ledger = CONTENT[:size], Ledger()
    with store.begin(Key("m")) as ingest:
        part = ingest.part(
            "w", size, claim=ledger.claim, wrote=ledger.wrote, awaited=lambda: awaited
        )
        for at in range(0, size, STEP):
            part.write(at, memoryview(content)[at : at + STEP])
        part.seal(hashlib.sha256(content).hexdigest())
        descriptor = os.open("w", os.O_RDONLY, dir_fd=ingest.content)
        try:
            assert in_memory(descriptor, 0, size) == (size if awaited else 0)
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("size", [100, WINDOW + 1, SIZE])
def test_a_file_that_is_poured_leaves_nothing(store: Store, size: int) -> None:
    ledger = Ledger()
    with store.begin(Key("m")) as ingest:
        ingest.receive_file(
            "w", Bytes(CONTENT[:size]), claim=ledger.claim, length=size, sha256=None
        )
        descriptor = os.open("w", os.O_RDONLY, dir_fd=ingest.content)
        try:
            assert in_memory(descriptor, 0, size) == 0
            assert os.pread(descriptor, size, 0) == CONTENT[:size]
        finally:
            os.close(descriptor)
