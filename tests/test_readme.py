"""What the README says is so: its settings are the settings, its calls work as written."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import weightd
from tests.api.origin import http_origin
from tests.bench.plot import plot
from tests.bench.report import Report
from tests.system.daemon import running
from weightd import errors
from weightd.settings import load, options

README = (Path(weightd.__file__).parents[1] / "README.md").read_text()


def settings_table() -> str:
    """The README's table of settings, as it has to be."""
    lines = ["| setting | flag | variable | default | what it is |", "|---|---|---|---|---|"]
    for one in options():
        flag, variable = f"`{one.flag} {one.word}`", f"`{one.variable}`"
        if one.file_only:
            flag, variable = f"in the file: `{one.word}`", "none"
        lines.append(f"| `{one.name}` | {flag} | {variable} | {one.default} | {one.description} |")
    return "\n".join(lines)


def test_every_setting_is_documented() -> None:
    assert settings_table() in README, f"the README's table has to be:\n\n{settings_table()}"


def test_the_benchmark_is_shown_as_it_was_measured() -> None:
    results = Path(weightd.__file__).parents[1] / "tests/bench/results"
    report = Report.read(results / "latest.json")
    assert report.markdown() in README, f"the README's table has to be:\n\n{report.markdown()}"
    assert (results / "latest.svg").read_text() == plot(report.rows)


def test_every_refusal_is_explained() -> None:
    section = README.partition("## What each refusal means")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([a-z-]+)`", section))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.code for kind in kinds if hasattr(kind, "code")}
    assert codes - explained == {"unknown-file"}  # it names the file; there is nothing to add


def test_the_two_commands_come_first() -> None:
    first = README.partition("```sh\n")[2].partition("```")[0]
    assert [line.split("#")[0].split() for line in first.splitlines()] == [
        ["make", "run"],
        ["make", "test"],
    ]


def test_the_settings_of_fetches_are_settings(tmp_path: Path) -> None:
    section = README.partition("## Fetch it from its origin")[2].partition("\n## ")[0]
    config = tmp_path / "weightd.toml"
    config.write_text(section.partition("```toml\n")[2].partition("```")[0])
    settings = load({}, config).settings
    assert settings.fetch_bandwidth == 500_000_000
    assert [(str(one.key), one.keep) for one in settings.preload] == [
        ("meta-llama/Llama-3.1-8B", "forever")
    ]


@pytest.mark.needs("curl", "tar", "bash")
def test_the_calls_work_one_after_another(root: Path, tmp_path: Path) -> None:
    section = README.partition("## Curl by curl")[2].partition("\n## ")[0]
    calls = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))
    # One more is shown and not run: it ends in a server.
    assert calls.count("curl --") == section.count("curl --") - 1
    with http_origin() as origin, running(root, capacity=20_000_000) as daemon:
        # They also work on a cache that is full.
        assert daemon.client.call("PUT", "/v1/models/old", bytes(19_000_000)).status == 201
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", calls],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "SOCKET": str(daemon.socket),
                "SOURCE": origin.listing("m", **{"config.json": b"{}", "weights": bytes(50_000)}),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert f"{root}/models/org+my-model@v1." in ran.stdout
        assert f"{root}/models/org+fetched." in ran.stdout
        models = daemon.client.get("/v1/models")["models"]
        assert [(one["key"], one["pins"]) for one in models] == [("org/my-model@v1", 0)]
