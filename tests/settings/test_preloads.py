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
        ('key = "m"\nsource = "hf://org/m"\n[[preload]]\nkey = "m"\nsource = "hf://o/m"', "twice"),
    ],
)
def test_what_is_wrong_is_named(table: str, named: str, config: Path) -> None:
    config.write_text(f"[[preload]]\n{table}\n")
    with pytest.raises(SettingsError) as refused:
        load({}, config)
    (problem,) = refused.value.problems
    assert problem.startswith(f"preload ({config}): ")
    assert named in problem


def test_a_variable_cannot_say_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHTD_PRELOAD", "hf://org/m")
    with pytest.raises(SettingsError, match=r"preload \(WEIGHTD_PRELOAD\): .*tables of the file"):
        load({}, config)
