"""Hashing beside whoever fills the buffers."""

from __future__ import annotations

import hashlib
import threading

from hypothesis import given
from hypothesis import strategies as st

from weightd.store.hasher import BUFFER_BYTES, BUFFERS, Hasher


def fed(hasher: Hasher, data: bytes) -> str:
    """What comes of one file, handed on buffer by buffer."""
    start = 0
    while True:
        buffer = hasher.buffer()
        piece = data[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        hasher.update(buffer, len(piece))
        start += len(piece)
        if len(piece) < len(buffer):
            return hasher.hexdigest()


@given(
    st.lists(
        st.one_of(
            st.integers(0, 100),
            st.integers(BUFFER_BYTES - 1, BUFFER_BYTES + 1),
            st.just(BUFFERS * BUFFER_BYTES),
            st.just((BUFFERS + 2) * BUFFER_BYTES + 3),
        ),
        max_size=4,
    )
)
def test_file_after_file_has_the_digest_of_its_bytes(sizes: list[int]) -> None:
    hasher = Hasher()
    for number, size in enumerate(sizes):
        data = bytes([number + 1]) * size
        assert fed(hasher, data) == hashlib.sha256(data).hexdigest()
    hasher.close()


def test_a_file_that_comes_to_nothing_leaves_no_thread() -> None:
    before = threading.active_count()
    hasher = Hasher()
    for _ in range(BUFFERS + 1):
        buffer = hasher.buffer()
        hasher.update(buffer, len(buffer))
    hasher.close()
    hasher.close()
    assert threading.active_count() == before


def test_there_are_never_more_buffers_than_said() -> None:
    hasher = Hasher()
    seen = set()
    for _ in range(5 * BUFFERS):
        buffer = hasher.buffer()
        seen.add(id(buffer.obj))
        hasher.update(buffer, len(buffer))
    hasher.close()
    assert len(seen) <= BUFFERS
