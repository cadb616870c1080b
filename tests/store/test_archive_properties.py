"""The strict reader against the standard library's, on trees and on damage.

What the strict reader accepts, ``tarfile`` must understand as the same files;
the other way round does not hold, since the strict reader refuses what is
ambiguous.
"""

from __future__ import annotations

import io
import tarfile
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.support import Bytes, TarFormat, tar
from tests.store.test_archive import unpack
from weightd.errors import InvalidArchive

_segment = st.text(
    st.characters(
        min_codepoint=0x20, exclude_characters="/\x7f\x85\u2028\u2029", exclude_categories=["Cs"]
    ),
    min_size=1,
    max_size=60,
).filter(lambda text: text not in (".", "..") and len(text.encode()) <= 255)
_path = st.lists(_segment, min_size=1, max_size=5).map("/".join)
_content = st.binary(max_size=600) | st.integers(0, 3000).map(lambda size: b"w" * size)


def _no_clash(files: dict[str, bytes]) -> bool:
    return not any(
        other.startswith(path + "/") for path in files for other in files if other != path
    )


_files = st.dictionaries(_path, _content, min_size=1, max_size=6).filter(_no_clash)
# Enough kinds of names for damage: what it hits matters more than what it says.
_few_files = st.dictionaries(
    st.sampled_from(["w", "a/w", "\u00e9/x", "n" * 99, "d" * 120 + "/w", "m" * 200]),
    st.sampled_from([b"", b"1", b"w" * 513]),
    min_size=1,
    max_size=3,
)
_dialect = st.sampled_from(["ustar", "gnu", "pax"])


def by_tarfile(data: bytes) -> dict[str, bytes]:
    """The regular files as the standard library sees them."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            if member.isreg():
                stream = archive.extractfile(member)
                assert stream is not None
                found[member.name.removeprefix("./")] = stream.read()
    return found


def packed(files: dict[str, bytes], dialect: str) -> bytes | None:
    try:
        return tar(files, cast(TarFormat, dialect))
    except ValueError:
        # A name that ustar cannot hold.
        return None


@given(_files, _dialect, st.sampled_from([1, 511, 513, 1 << 20]))
@settings(max_examples=80, deadline=None)
def test_what_was_packed_comes_out(files: dict[str, bytes], dialect: str, piece: int) -> None:
    data = packed(files, dialect)
    if data is None:
        return
    assert unpack(Bytes(data, piece)) == files == by_tarfile(data)


@given(
    _few_files,
    _dialect,
    st.lists(
        st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=12)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damage_is_refused_or_read_alike(
    files: dict[str, bytes], dialect: str, damage: list[tuple[int, bytes]], resummed: bool
) -> None:
    """Bytes changed anywhere, checksums made right again or not, never confuse the two readers."""
    data = packed(files, dialect)
    if data is None:
        return
    mutated = bytearray(data)
    for offset, patch in damage:
        start = offset % len(data)
        mutated[start : start + len(patch)] = patch
        if resummed:
            block = start - start % 512
            header = mutated[block : block + 148] + b" " * 8 + mutated[block + 156 : block + 512]
            mutated[block + 148 : block + 156] = b"%06o\0 " % sum(header)
    try:
        seen = unpack(Bytes(bytes(mutated)))
    except InvalidArchive:
        return
    assert seen == by_tarfile(bytes(mutated))


@given(st.binary(max_size=4096))
@settings(max_examples=200, deadline=None)
def test_anything_at_all_is_refused_in_our_words(data: bytes) -> None:
    try:
        unpack(Bytes(data))
    except InvalidArchive:
        return
