"""Pieces written by several threads in any order make what a plain buffer holds."""

from __future__ import annotations

import hashlib
import random
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.support import Ledger, begun, du, manifest_of
from weightd.model import FileEntry, Key
from weightd.store import Part, Store, follower, pace, part
from weightd.store.spans import Spans

KEY = Key("m")
SIZES = st.one_of(st.integers(0, 20_000), st.sampled_from([0, 1, 4096, 8192, 12_288]))


@st.composite
def pieces(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """A content, and spans that cover it, some of them twice, in any order."""
    size = draw(SIZES)
    cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=12))})
    spans = list(pairwise(cuts))
    over = st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
    spans += [(start, stop) for start, stop in draw(st.lists(over, max_size=4))]
    content = random.Random(draw(st.integers(0, 99))).randbytes(size)
    return content, draw(st.permutations(spans))


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """Let the hashing thread, the write-back and the flushes begin within so few bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "BEGIN_BYTES", 1000)
        patch.setattr(pace, "WINDOW", 5000)
        patch.setattr(part, "FLUSH_BYTES", 7000)
        yield


class Arrival:
    """One part of one ingest, and what a plain buffer would hold."""

    def __init__(self, store: Store, content: bytes) -> None:
        self.ledger = Ledger()
        self.content = content
        self._store = store
        self._wanted = memoryview(content)
        self._buffer = bytearray(len(content))
        self._written = Spans()
        self.ingest = begun(store, KEY)
        self.ingest.note(b"{}")
        self.part = self._open()

    def _open(self) -> Part:
        ledger, size = self.ledger, len(self.content)
        return self.ingest.part("d/w", size, claim=ledger.claim, wrote=ledger.wrote)

    def write(self, spans: list[tuple[int, int]]) -> None:
        """Write all of them at once, each by a thread that begins when all are there."""
        if not spans:
            return
        ready = threading.Barrier(len(spans))

        def one(span: tuple[int, int]) -> None:
            ready.wait()
            self.part.write(span[0], self._wanted[slice(*span)])

        with ThreadPoolExecutor(len(spans)) as threads:
            list(threads.map(one, spans))
        for start, stop in spans:
            self._buffer[start:stop] = self._wanted[start:stop]
            self._written.add(start, stop)
        self.check()

    def resume(self) -> None:
        if not self.ledger.written:
            # Without a byte there is nothing to go on from: a scan gives it up.
            return
        parked = self.ingest.park()
        assert parked.bytes == self.ledger.written
        assert self._store.scan().parked == [parked]
        self.ingest = begun(self._store, KEY, resume=parked)
        self.part = self._open()
        self.check()

    def discard(self) -> None:
        self.part.discard()
        self._written.clear()
        self.check()

    def flush(self) -> None:
        self.part.flush()

    def check(self) -> None:
        assert self.part.missing() == self._written.gaps(0, len(self.content))
        assert self.ledger.written == self.blocks()
        place = self._store.root / "incoming" / self.ingest.id
        assert du(place / "m") == self.blocks()

    def blocks(self) -> int:
        block = self._store.block
        touched = {at // block for start, stop in self._written for at in range(start, stop)}
        return len(touched) * block

    def finish(self) -> None:
        missing = self.part.missing()
        self.write(missing)
        assert self._buffer == self.content
        entry = self.part.seal(hashlib.sha256(self.content).hexdigest())
        assert entry == FileEntry("d/w", len(self.content), entry.sha256)
        path, _ = self._store.publish(self.ingest, manifest_of(KEY, [entry]))
        assert (path / "d/w").read_bytes() == self.content
        assert self.ledger.written == self._store.blocks(len(self.content))


STEPS = [Arrival.check, Arrival.check, Arrival.flush, Arrival.resume, Arrival.discard]


@settings(max_examples=25)
@given(pieces(), st.data())
def test_pieces_make_what_a_buffer_holds(
    told: tuple[bytes, list[tuple[int, int]]], data: st.DataObject
) -> None:
    content, spans = told
    with tempfile.TemporaryDirectory() as place, Store.open(Path(place) / "root") as store:
        arrival = Arrival(store, content)
        try:
            while spans:
                count = data.draw(st.integers(1, 4), label="at once")
                arrival.write(spans[:count])
                spans = spans[count:]
                data.draw(st.sampled_from(STEPS), label="then")(arrival)
            arrival.finish()
        finally:
            arrival.ingest.abort()
