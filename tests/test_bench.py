"""That the benchmark's largest scenario runs; what it measures is told by `make bench`."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

_SMALL = {
    "--rounds": "1",
    "--fetch": "1MiB",
    "--shards": "2",
    "--shard": "100kB",
    "--far": "1MiB",
    "--warm": "0",
}


@pytest.mark.needs(
    "curl", "aria2c", "nginx", "weed", "openssl", "boto3", "obstore", "huggingface_hub"
)
def test_fetches_are_held_against_what_else_downloads(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    given = {"--only": "fetch", "--dir": str(tmp_path), "--json": str(figures), **_SMALL}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", *itertools.chain(*given.items())],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert {row["what"].removesuffix(", most memory") for row in rows} == {
        "from a web server", "from S3", "from a hub", "from a web server 50 ms away",
    }  # fmt: skip
    assert all(ratio > 0 for row in rows for ratio in row["ratios"])
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
