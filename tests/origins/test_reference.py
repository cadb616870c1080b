"""References: what is one, how it is shown, and whether the operator lets it be fetched from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd.errors import Forbidden, InvalidRequest
from weightd.origins import Trust, check_allowed, parse_reference
from weightd.origins.contract import ORIGIN_KINDS
from weightd.origins.reference import REFERENCE_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("hf://org/name", "hf://org/name"),
        ("HF://org/name/", "hf://org/name"),
        ("hf://gpt2", "hf://gpt2"),
        ("hf://gpt2@main", "hf://gpt2@main"),
        ("hf://org/name@v1.0", "hf://org/name@v1.0"),
        ("hf://org/name:Q4_K_M@v1/sub/", "hf://org/name@v1:Q4_K_M/sub"),
        ("hf://org/name@refs/pr/3/sub", "hf://org/name@refs%2Fpr%2F3/sub"),
        ("hf://org/name@refs%2Fconvert%2Fparquet", "hf://org/name@refs%2Fconvert%2Fparquet"),
        ("hf://org/name?allow=*.json&ignore=x/", "hf://org/name?allow=*.json&ignore=x/"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/with space", "s3://bucket/with space"),
        ("s3://b/p?region=eu-west-1&anonymous=true", "s3://b/p?region=eu-west-1&anonymous=true"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
        ("HTTP://Host.Example:80/A/b.bin", "http://host.example/A/b.bin"),
        ("https://h:443/x", "https://h/x"),
        ("https://h:8443/x?v=1", "https://h:8443/x?v=1"),
        ("https://h./x", "https://h/x"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("file:///a/b/", "file:///a/b"),
        ("file://localhost/a%20b", "file:///a%20b"),
    ],
)
def test_a_reference_is_shown_in_one_way(text: str, canonical: str) -> None:
    reference = parse_reference(text)
    assert reference.text == canonical
    assert not reference.secret
    assert parse_reference(canonical) == reference


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no scheme"),
        ("org/name", "names no scheme"),
        ("/etc/passwd", "names no scheme"),
        ("ftp://h/x", "there is no origin ftp://; there are hf://, s3://"),
        ("hf:org/name", "not followed by //"),
        ("hf://", "is no name"),
        ("hf:///x", "is no name"),
        ("hf://../name", "is no name"),
        ("hf://org/na me", "is no name"),
        ("hf://org/name@", "no revision"),
        ("hf://org/name@a@b", "two revisions"),
        ("hf://org/name@../x", "no revision"),
        ("hf://org/name:", "no quantisation"),
        ("hf://org/name/../x", "segment '..'"),
        ("hf://org/name/%2e%2e/x", "segment '..'"),
        ("hf://org/name?token=x", "there is no option 'token'"),
        ("hf://org/name?allow=", "has no value"),
        ("s3://bucket", "names no prefix"),
        ("s3://bucket//", "names no prefix"),
        ("s3:///x", "names no bucket"),
        ("s3://buck et/x", "names no bucket"),
        ("s3://b/../x", "segment '..'"),
        ("s3://b/x?endpoint=http://evil", "there is no option 'endpoint'"),
        ("s3://b/x?region=evil.example/", "region"),
        ("s3://b/x?anonymous=yes", "anonymous"),
        ("gs://b/x?region=eu", "there is no option 'region'"),
        ("http://h", "names no file"),
        ("http://h/dir/", "names no file"),
        ("http:///x", "no host"),
        ("http://u:hunter2@h/x", "a user or a password"),
        ("http://h:99999/x", "cannot be read"),
        ("http://[::1/x", "cannot be read"),
        ("http://h/a/../b", "segment '..'"),
        ("http://h/%2E%2e/b", "segment '..'"),
        ("http://h/a%2f..%2fb", "segment '..'"),
        ("http://h/a%5c..%5cb", "segment '..'"),
        ("http://h/a b", "percent-encoded"),
        ("http://h/ä", "percent-encoded"),
        ("http://h\\@evil/x", "backslashes"),
        ("http://h/a#b", "fragment"),
        ("http://h/a%00b", "names no file"),
        ("file://host/a", "absolute path"),
        ("file://", "names no file"),
        ("file:///", "names no file"),
        ("file:///a/../b", "segment '..'"),
        ("file:///a/%2e%2e/b", "segment '..'"),
        ("hf://org/name\n", "control character"),
        ("hf://org/\ud800", "control character"),
        ("http://h/" + "a" * REFERENCE_BYTES_MAX, "longer than"),
    ],
)
def test_what_is_no_reference(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_reference(text)
    assert raised.value.what == "source"
    assert reason in raised.value.reason
    assert "hunter2" not in str(raised.value)


@given(st.text(max_size=200), st.sampled_from(["", *(f"{kind}://" for kind in ORIGIN_KINDS)]))
def test_any_text_is_a_reference_or_refused(text: str, scheme: str) -> None:
    """And what is one is shown on one line, and reads back."""
    try:
        reference = parse_reference(scheme + text)
    except InvalidRequest:
        return
    assert len(reference.text.splitlines()) == 1
    if not reference.secret:
        assert parse_reference(reference.text).text == reference.text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("X-Amz-Signature=abc&X-Amz-Date=1&id=7", "X-Amz-Signature=***&X-Amz-Date=***&id=7"),
        ("sv=2021&se=2030&sr=b&sig=abc", "sv=***&se=***&sr=b&sig=***"),
        ("token=hunter2&download=true", "token=***&download=true"),
        ("access%5Fkey=hunter2", "access%5Fkey=***"),
        ("q=eyJhbGciOiJIUzI1NiJ9x7", "q=***"),
        ("Zm9vYmFyYmF6cXV4MTIzNDU2", "***"),
        ("v=1&file=model", "v=1&file=model"),
    ],
)
def test_a_query_is_shown_without_its_secrets(query: str, shown: str) -> None:
    reference = parse_reference(f"https://h/m.bin?{query}")
    assert reference.text == f"https://h/m.bin?{shown}"
    assert reference.raw == f"https://h/m.bin?{query}"
    assert reference.secret == (query != shown)
    for part in query.replace("&", "=").split("="):
        if part not in shown:
            assert part not in repr(reference)


# -- The operator's list -------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "text", "allowed"),
    [
        ("hf://", "hf://org/m", True),
        ("hf://org", "hf://org/m", True),
        ("hf://org/", "hf://org/m@v1", True),
        ("hf://org/m", "hf://org/m@v1:Q4", True),
        ("hf://org/m", "hf://org/m:Q4", True),
        ("hf://org/m", "hf://org/m?allow=*", True),
        ("hf://org/m", "hf://org/m2", False),
        ("hf://org/Llama-*", "hf://org/Llama-8B", True),
        ("hf://org", "hf://org2/m", False),
        ("https://cdn.example", "https://cdn.example/m.bin", True),
        ("HTTPS://CDN.example", "https://cdn.example/m.bin", True),
        ("https://cdn.example", "https://cdn.example.evil/m.bin", False),
        ("https://cdn.example", "https://cdn.example:8443/m.bin", False),
        ("https://cdn.example/a", "https://cdn.example/a/m.bin", True),
        ("https://cdn.example/a", "https://cdn.example/ab/m.bin", False),
        ("https://cdn.example/a", "http://cdn.example/a/m.bin", False),
        ("s3://models", "s3://models/x", True),
        ("s3://models", "s3://models-private/x", False),
        ("s3://models/a", "s3://models/a", True),
        ("s3://models/a/", "s3://models/ab", False),
    ],
)
def test_an_entry_allows_what_it_names_and_what_is_below(
    entry: str, text: str, allowed: bool
) -> None:
    reference = parse_reference(text)
    trust = Trust(allowed=("gs://other", entry))
    if allowed:
        check_allowed(reference, trust)
    else:
        with pytest.raises(Forbidden, match="allow_origins"):
            check_allowed(reference, trust)


def test_no_list_allows_all_but_files() -> None:
    for text in ("hf://org/m", "s3://b/x", "https://h/x"):
        check_allowed(parse_reference(text), Trust())
    with pytest.raises(Forbidden, match="import_roots"):
        check_allowed(parse_reference("file:///etc/hostname"), Trust())


def test_files_lie_below_the_import_roots_links_resolved(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "root-2"
    for directory in (root / "m", outside):
        directory.mkdir(parents=True)
    (root / "out").symlink_to(outside)
    (tmp_path / "in").symlink_to(root)
    trust = Trust(import_roots=(str(root),))
    for inside in (root, root / "m", root / "absent", tmp_path / "in" / "m"):
        check_allowed(parse_reference(f"file://{inside}"), trust)
    for beyond in (tmp_path, outside, root / "out", root / "out" / "m"):
        with pytest.raises(Forbidden):
            check_allowed(parse_reference(f"file://{beyond}"), trust)
    with pytest.raises(Forbidden):
        check_allowed(parse_reference(f"file://{root}/m"), Trust(("hf://",), (str(root),)))
    check_allowed(parse_reference(f"file://{root}/m"), Trust((f"file://{root}",), (str(root),)))
