"""A file of which its source tells the same as before is still the same, sha256 told or not."""

from __future__ import annotations

from weightd.cache.fetching.listed import recalled, validators
from weightd.model import FileEntry, Key, Manifest, content_digest
from weightd.origins.contract import Listing, RemoteFile

FILES = tuple(FileEntry(path, 5, path * 64) for path in "abcd")
HERE = Manifest(
    Key("m"), content_digest(FILES), FILES, 1, 0.0, "s3://b/m", "r",
    validators=(("a", '"1"'), ("b", '"1"'), ("d", '"1"'), ("gone", '"1"')),
)  # fmt: skip


def test_only_what_is_told_to_be_the_same_is_recalled() -> None:
    told = (
        RemoteFile("a", 5, "", validator='"1"'),
        RemoteFile("b", 5, "", validator='"2"'),
        RemoteFile("c", 5, "", validator='"1"'),
        RemoteFile("d", 6, "", validator='"1"'),
        RemoteFile("e", 5, "", validator='"1"'),
    )
    found = recalled(Listing(told, "r2"), HERE)
    assert [file.sha256 for file in found.files] == ["a" * 64, None, None, None, None]
    assert found.revision == "r2"


def test_what_the_source_states_itself_goes_before() -> None:
    told = RemoteFile("a", 5, "", sha256="f" * 64, validator='"1"')
    assert recalled(Listing((told,), None), HERE).files == (told,)


def test_validators_are_kept_where_no_sha256_is_stated() -> None:
    told = (
        RemoteFile("a", 5, "", sha256="a" * 64, validator='"1"'),
        RemoteFile("b", 5, "", validator='"2"'),
        RemoteFile("c", 5, ""),
    )
    assert validators(Listing(told, None)) == (("b", '"2"'),)
