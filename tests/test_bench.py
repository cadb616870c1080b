"""That the benchmark's scenarios run, and say what they found; what that is, `make bench` tells."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.bench.figures import Row
from tests.bench.plot import plot
from tests.bench.report import Report
from tests.bench.sizes import FULL, GIB
from tests.bench.turns import order

_FETCH = {"--fetch": "1MiB", "--shards": "2", "--shard": "100kB", "--far": "1MiB"}
_BYTES = {
    "--put": "1MiB",
    "--members": "2",
    "--member": "100kB",
    "--content": "1MiB",
    "--starts": "1",
}
_MANY = {"--scale": "20", "--held": "30", "--connections": "5"}


def run(tmp_path: Path, only: str, sizes: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of one round, in which nothing else was left behind."""
    figures = tmp_path / "figures.json"
    given = {"--only": only, "--dir": str(tmp_path), "--json": str(figures), **sizes}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench", "--rounds", "1", "--warm", "0"),
            *itertools.chain(*given.items()),
        ],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    rows: list[dict[str, Any]] = json.loads(figures.read_text())["rows"]
    return rows


@pytest.mark.needs(
    "curl", "aria2c", "nginx", "weed", "openssl", "s5cmd", "boto3", "obstore", "huggingface_hub"
)
def test_fetches_are_held_against_what_else_downloads(tmp_path: Path) -> None:
    rows = run(tmp_path, "fetch", _FETCH)
    assert {row["what"].removesuffix(", most memory") for row in rows} == {
        "from a web server", "from S3", "from a hub", "from a web server 50 ms away",
    }  # fmt: skip
    assert all(ratio > 0 for row in rows for ratio in row["ratios"])


@pytest.mark.needs("curl", "nginx", "openssl", "tar")
def test_bytes_in_and_out_are_held_against_who_does_the_same_work(tmp_path: Path) -> None:
    rows = run(tmp_path, "put,tar,content,get", _BYTES)
    assert {row["rival"] for row in rows} == {
        "nginx PUT, sha256sum, sync", "nginx PUT, openssl sha256, sync", "nginx PUT, sync",
        "cp, sha256sum, sync", "cp, openssl sha256, sync", "what it may add",
        "tar x, sha256sum, sync", "tar x, openssl sha256, sync",
        "nginx, sendfile on", "python -c pass",
    }  # fmt: skip
    assert all(figure > 0 for row in rows if row["better"] == "more" for figure in row["ratios"])


def test_many_models_are_held_against_a_tenth_of_them(tmp_path: Path) -> None:
    rows = run(tmp_path, "scale", _MANY)
    assert {row["rival"] for row in rows} == {"with 2 models", "what it may take"}
    assert all(ratio > 0 for row in rows for ratio in row["ratios"])


def test_memory_is_held_against_what_it_may_be(tmp_path: Path) -> None:
    rows = run(tmp_path, "memory", {"--puts": "20"})
    assert {row["rival"] for row in rows} == {"after 24 small puts", "what it may take"}
    assert all(ratio > 0 for row in rows for ratio in row["ratios"])


def rows() -> list[Row]:
    rate = Row("Bytes", "a put", "cp & sync", "MB/s", aim=">= 0.9")
    time = Row("Time", "a hit", "another", "us", aim="<= 2.5")
    nothing = Row("Time", "all of it", "a bound", "MB", aim="<= 1")
    aimless = Row("Time", "the worst hit", "another", "us")
    for factor in (1.0, 2.0):
        rate.add(1e9 * factor, 1e9)
        time.add(4e-6 * factor, 1e-6)
        nothing.add(0.0, 1e6)
        aimless.add(9e-6, 1e-6)
    return [rate, time, nothing, aimless]


def test_a_ratio_is_told_whichever_way_is_better() -> None:
    rate, time, _, aimless = rows()
    assert (rate.ratios, time.ratios) == ([1.0, 2.0], [4.0, 8.0])
    assert (rate.gain(2.0), time.gain(4.0)) == (2.0, 0.25)
    assert (rate.bound, time.bound, aimless.bound) == (0.9, 2.5, None)
    assert Row("", "", "", "ms", aim="< 100 ms").bound is None
    assert time.cells() == ("a hit", "6 us", "1 us", "6.00", "4.00 .. 8.00", "<= 2.5", "another")


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = Report({"machine": "this"}, {"rounds": 2}, rows(), ["It took 1 s."])
    report.write(tmp_path / "figures.json")
    assert Report.read(tmp_path / "figures.json") == report


def test_markdown_has_what_is_aimed_at() -> None:
    table, _, facts = Report({"machine": "this"}, {}, rows(), []).markdown().partition("\n\n")
    lines = [line.strip("| ").split(" | ")[0] for line in table.splitlines()[2:]]
    assert lines == ["**Bytes**", "a put", "**Time**", "a hit", "all of it"]
    assert {line.count("|") for line in table.splitlines()} == {8}
    assert facts == "- machine: this"


def test_a_plot_has_a_line_for_each_aim_and_better_is_to_the_right() -> None:
    drawn = ET.fromstring(plot(rows()))
    space = "{http://www.w3.org/2000/svg}"
    dots = [dot for dot in drawn.iter(f"{space}circle") if dot.find(f"{space}title") is not None]
    assert [dot.get("class") for dot in dots] == ["met", "unmet", "met"]
    one = next(line for line in drawn.iter(f"{space}line") if line.get("class") == "one")
    better, worse, best = (float(dot.get("cx", "")) for dot in dots)
    assert worse < float(one.get("x1", "")) < better < best


def test_sizes_shrink_to_the_disk_that_is_there() -> None:
    smaller = FULL.within(12 * GIB)
    assert smaller.disk <= 10 * GIB
    assert (smaller.put, smaller.member, smaller.content) < (FULL.put, FULL.member, FULL.content)
    assert smaller.members == FULL.members


def test_nobody_always_comes_after_the_same_one() -> None:
    rounds = ["".join(order("abc", number)) for number in range(6)]
    assert rounds == ["abc", "cba", "bca", "acb", "cab", "bac"]
    assert ["".join(order("ab", number)) for number in range(4)] == ["ab", "ba", "ba", "ab"]
