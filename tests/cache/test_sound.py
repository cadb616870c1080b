"""A listing that no model can be made of is refused before anything is asked or made room for."""

from __future__ import annotations

import pytest

from weightd.cache.fetching.listed import sound
from weightd.errors import OriginFailed
from weightd.origins.contract import Listing, RemoteFile


def listing(*paths: str) -> Listing:
    return Listing(tuple(RemoteFile(path, 1, path) for path in paths), None)


@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("a", "a"),
        ("a", "a/b"),
        ("a", "a/b/c"),
        ("a/b/c/d", "a/b"),
        ("a/b/c", "a/b/c/d/e"),
        ("a\udc80",),
        ("../a",),
        tuple(f"{number}/a" for number in range(6000)),
        tuple(f"{number}/a/b/c/d/e/f/g/h/i/j/k" for number in range(1000)),
        tuple(str(number) for number in range(10_001)),
    ],
    ids=lambda paths: f"{len(paths)} files {paths[:2]!a}",
)
def test_what_can_be_no_model(paths: tuple[str, ...]) -> None:
    with pytest.raises(OriginFailed) as raised:
        sound("https://h/m", listing(*paths))
    assert not raised.value.retryable
    raised.value.detail.encode()


def test_what_can() -> None:
    told = listing("a", "b/a", "b/c/a", "bc", "b.c")
    assert sound("https://h/m", told) is told
