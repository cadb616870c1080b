"""Keys, holders, paths and digests: what is a name, and which part of what is not."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd.errors import InvalidKey, InvalidRequest
from weightd.model import (
    FILE_PATH_BYTES_MAX,
    FileEntry,
    Key,
    Manifest,
    content_digest,
    file_path_fault,
    parse_holder,
    parse_sha256,
)

segments = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
names = st.lists(segments, min_size=1, max_size=6).map("/".join)
keys = st.builds(Key, names, st.none() | segments)
sha256s = st.binary(min_size=32, max_size=32).map(bytes.hex)
RULE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,5}(@[A-Za-z0-9][A-Za-z0-9._-]*)?"
)


@given(keys)
def test_key_reads_back(key: Key) -> None:
    assert Key.parse(str(key)) == key
    assert key.name.endswith(key.last_segment)
    assert "/" not in key.last_segment


@given(st.text(st.sampled_from("aZ0._-/@%\0\n é\ud800"), max_size=30) | st.text(max_size=220))
def test_any_text_is_a_key_by_the_rule_or_refused_with_it(text: str) -> None:
    is_key = bool(RULE.fullmatch(text)) and len(text) <= 200
    try:
        parsed = Key.parse(text)
    except InvalidKey as refused:
        assert not is_key
        assert refused.key == text  # noqa: PT017
    else:
        assert is_key
        assert str(parsed) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("/a", "a segment is empty"),
        ("a//b", "a segment is empty"),
        ("a/", "a segment is empty"),
        ("a/../b", "segment '..'"),
        (".hidden", "segment '.hidden'"),
        ("a\n", r"segment 'a\\n'"),
        ("a\0b", r"segment 'a\\x00b'"),
        ("modèle", "segment 'modèle'"),
        ("a@", "a revision is empty"),
        ("@r", "a segment is empty"),
        ("a@b@c", "revision 'b@c'"),
        ("a@b/c", "revision 'b/c'"),
        ("a/b/c/d/e/f/g", "7 segments, more than 6"),
        ("a" * 201, "longer than 200 bytes"),
    ],
)
def test_bad_key_names_its_bad_part(text: str, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        Key.parse(text)


def test_longest_key() -> None:
    assert Key.parse("a" * 200).name == "a" * 200


@given(st.text(max_size=140))
def test_holder_is_by_the_rule_or_refused(text: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", text, re.ASCII):
        assert parse_holder(text) == text
    else:
        with pytest.raises(InvalidRequest, match="holder"):
            parse_holder(text)


@given(sha256s)
def test_sha256_in_any_case(digest: str) -> None:
    assert parse_sha256(digest.upper()) == digest


@pytest.mark.parametrize(
    "text", ["", "0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n", "\N{ARABIC-INDIC DIGIT ZERO}" * 64]
)
def test_sha256_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="sha256"):
        parse_sha256(text)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("", "segment ''"),
        ("/etc/passwd", "absolute"),
        ("a/../../b", "segment '..'"),
        ("./a", "segment '.'"),
        ("a//b", "segment ''"),
        ("a/", "segment ''"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("a\0", "control character"),
        ("\ud800", "not valid UTF-8"),
        ("a/" * 32 + "a", "deeper than 32"),
        ("a" * 256, "longer than 255 bytes"),
        ("é" * 128, "longer than 255 bytes"),
        ("a/" * 600, "longer than 1024 bytes"),
    ],
)
def test_bad_path_names_its_fault(path: str, fault: str) -> None:
    assert fault in (file_path_fault(path) or "")


@given(st.text(max_size=60))
def test_a_path_without_fault_stays_below_its_directory(path: str) -> None:
    if file_path_fault(path) is None:
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert path.isprintable() or "\n" not in path
        assert 0 < len(path.encode()) <= FILE_PATH_BYTES_MAX


# Few of each, so that two listings are often nearly the same.
entries = st.builds(
    FileEntry,
    st.sampled_from(["a", "a.b", "a/b", "a0", "b c", "é"]),
    st.sampled_from([0, 1, 11]),
    st.sampled_from(["0" * 64, "1" * 64]),
)
listings = st.lists(entries, min_size=1, max_size=4, unique_by=lambda entry: entry.path)


@given(st.data(), listings)
def test_digest_does_not_depend_on_order(data: st.DataObject, files: list[FileEntry]) -> None:
    assert content_digest(data.draw(st.permutations(files))) == content_digest(files)


@given(listings)
def test_digest_is_of_the_canonical_list(files: list[FileEntry]) -> None:
    lines = sorted((one.path, f"{one.sha256} {one.bytes} {one.path}\n") for one in files)
    expected = hashlib.sha256("".join(line for _, line in lines).encode()).hexdigest()
    assert content_digest(files) == expected


@given(listings, listings)
def test_equal_digests_mean_equal_content(one: list[FileEntry], other: list[FileEntry]) -> None:
    assert (content_digest(one) == content_digest(other)) == (sorted(one) == sorted(other))


@given(keys, listings)
def test_manifest_adds_up(key: Key, files: list[FileEntry]) -> None:
    manifest = Manifest(key, content_digest(files), tuple(files), 1, 0.0)
    assert manifest.bytes == sum(one.bytes for one in files)
    assert manifest.id == (key, manifest.digest)
