"""Every query of the dashboard and every recording, by a real Prometheus that scrapes a daemon."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.polling import until, until_nothing
from tests.prometheus.life import CAPACITY, go_on, live
from tests.prometheus.rules import HERE, RECORDINGS, alerts, rules
from tests.prometheus.server import running_prometheus
from tests.system.daemon import running

DASHBOARD = HERE / "deploy/grafana/weightd.json"


def panels() -> Iterator[dict[str, Any]]:
    """Every panel, those of rows that are closed too."""
    for one in json.loads(DASHBOARD.read_text())["panels"]:
        yield one
        yield from one.get("panels") or ()


def queries() -> list[str]:
    """Every query, with the variables as they are at first; a rate is over what a life takes."""
    asked = [one["expr"] for panel in panels() for one in panel.get("targets") or ()]
    for name, value in (
        *(("$__rate_interval", "60s"), ("$__range", "60s")),
        *(("$job", ".*"), ("$node", ".*"), ("[15m]", "[60s]")),
    ):
        asked = [one.replace(name, value) for one in asked]
    assert not [one for one in asked if "$" in one]
    return asked


def test_the_dashboard_is_what_its_generator_makes() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "deploy.grafana.generate"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == DASHBOARD.read_text(), "python -m deploy.grafana.generate makes it anew"


def test_every_panel_says_what_it_shows_in_which_unit() -> None:
    shown = [one for one in panels() if one["type"] not in ("row", "text")]
    assert len(shown) > 20
    for panel in shown:
        assert panel["description"], panel["title"]
        assert panel["type"] == "table" or panel["fieldConfig"]["defaults"]["unit"]
        names = [one["refId"] for one in panel["targets"]]
        assert len(set(names)) == len(names), panel["title"]
    named = set(re.findall(r"Weightd[A-Z]\w+", DASHBOARD.read_text()))
    assert named <= set(alerts())


@pytest.mark.needs("prometheus")
def test_every_query_and_every_recording_gives_figures(root: Path, tmp_path: Path) -> None:
    with (
        running(root, capacity=CAPACITY, options=("--listen", "127.0.0.1:0")) as daemon,
        running_prometheus(tmp_path / "prometheus") as prometheus,
    ):
        prometheus.scrape({"n1": daemon.port()})
        until(lambda: prometheus.query("weightd_ready == 1"))
        live(daemon.client)
        asked = [*queries(), *(rule["record"] for rule in rules(RECORDINGS))]
        assert len(asked) > 70

        def left() -> list[str]:
            """Those that have never given any."""
            asked[:] = [one for one in asked if not _figures(prometheus.query(one))]
            if asked:
                go_on(daemon.client)
            return asked

        until_nothing(left, prometheus.problems)
        assert prometheus.problems() == []


def _figures(found: list[dict[str, Any]]) -> list[float]:
    values = [float(one["value"][1]) for one in found]
    return [one for one in values if not math.isnan(one)]
