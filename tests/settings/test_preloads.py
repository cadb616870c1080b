"""The list of what is to be on the node: read from the file alone, and every mistake named."""

from __future__ import annotations

from pathlib import Path

import pytest

from weightd.model import Key
from weightd.settings import Preload, SettingsError, load

TABLES = """
[[preload]]
key = "org/first@v1"
source = "https://origin.example/first.json"
keep = "forever"

[[preload]]
key = "org/second"
source = ["https://mirror.example/second.bin", "hf://org/second"]
keep = "7d"

[[preload]]
key = "org/third"
source = "hf://org/third"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "weightd.toml"


def test_tables_are_read_in_their_order(config: Path) -> None:
    config.write_text(TABLES)
    assert load({}, config).settings.preload == (
        Preload(Key("org/first", "v1"), ("https://origin.example/first.json",), "forever"),
        Preload(
            Key("org/second"), ("https://mirror.example/second.bin", "hf://org/second"), 7 * 86400.0
        ),
        Preload(Key("org/third"), ("hf://org/third",), None),
    )


def test_a_table_may_name_a_credential_and_insist_on_content(config: Path) -> None:
    digest = "ab" * 32
    config.write_text(
        f'credentials = {{hub = {{file = "/a", for = "hf://org/"}}}}\n'
        f'[[preload]]\nkey = "m"\nsource = ["https://mirror.example/m.bin", "hf://org/m"]\n'
        f'credential = "hub"\ndigest = "{digest.upper()}"\n'
    )
    (preload,) = load({}, config).settings.preload
    assert (preload.credential, preload.digest) == ("hub", digest)
    assert str(preload) == (
        f"m from https://mirror.example/m.bin, hf://org/m (with credential hub, of digest {digest})"
    )


def test_a_credential_that_is_wrong_itself_is_one_problem(config: Path) -> None:
    config.write_text(
        'credentials = {hub = "a"}\n[[preload]]\nkey = "m"\nsource = "hf://org/m"\n'
        'credential = "hub"\n'
    )
    with pytest.raises(SettingsError) as refused:
        load({}, config)
    (problem,) = refused.value.problems
    assert problem.startswith(f"credentials ({config}): ")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ('source = "hf://org/m"', "table 1: key: None is not text"),
        ('key = "a//b"\nsource = "hf://org/m"', "table 1: key: 'a//b' is not a key"),
        ('key = "m"', "table 1: source: None is no reference"),
        ('key = "m"\nsource = []', "table 1: source: [] is no reference"),
        ('key = "m"\nsource = [7]', "table 1: source: 7 is no reference"),
        ('key = "m"\nsource = "ftp://host/m"', "table 1: source:"),
        ('key = "m"\nsource = "hf://org/m"\nkeep = "long"', "keep: 'long' is neither 'forever'"),
        ('key = "m"\nsource = "hf://org/m"\nkeep = true', "keep: True is neither 'forever'"),
        ('key = "m"\nsource = "hf://org/m"\nkept = 1', "did you mean keep?"),
        (
            'key = "m"\nsource = "hf://org/m"\ncredential = "hut"',
            "table 1: credential: there is no 'hut' in the settings; there is hub",
        ),
        (
            'key = "m"\nsource = "hf://organ/m"\ncredential = "hub"',
            "table 1: credential: 'hub' is for none of these sources, but for hf://org/",
        ),
        ('key = "m"\nsource = "hf://org/m"\ncredential = 7', "credential: 7 is no name"),
        ('key = "m"\nsource = "hf://org/m"\ndigest = "ab"', "'ab' is not 64 hexadecimal digits"),
        ('key = "m"\nsource = "hf://org/m"\ndigest = 7', "digest: 7 is not 64 hexadecimal digits"),
        ('key = "m"\nsource = "hf://org/m"\n[[preload]]\nkey = "m"\nsource = "hf://o/m"', "twice"),
    ],
)
def test_what_is_wrong_is_named(table: str, named: str, config: Path) -> None:
    credentials = 'credentials = {hub = {file = "/a", for = "hf://org/"}}'
    config.write_text(f"{credentials}\n[[preload]]\n{table}\n")
    with pytest.raises(SettingsError) as refused:
        load({}, config)
    (problem,) = refused.value.problems
    assert problem.startswith(f"preload ({config}): ")
    assert named in problem


def test_a_variable_cannot_say_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHTD_PRELOAD", "hf://org/m")
    with pytest.raises(SettingsError, match=r"preload \(WEIGHTD_PRELOAD\): .*tables of the file"):
        load({}, config)
