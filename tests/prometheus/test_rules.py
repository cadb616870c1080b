"""The rules: well formed, each alert tried at its threshold, and explained in the README."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.prometheus.rules import ALERTS, RECORDINGS, alerts, cases, rules


@pytest.mark.needs("promtool")
def test_promtool_takes_the_rules() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", "--lint-fatal", RECORDINGS, ALERTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.needs("promtool")
@pytest.mark.parametrize(
    "file", sorted(Path(__file__).parent.glob("*.yaml")), ids=lambda file: str(file.stem)
)
def test_alerts_fire_and_clear(file: Path) -> None:
    tried = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_each_alert_is_tried_before_while_and_after_it_fires() -> None:
    tried = dict(cases())
    assert set(tried) == set(alerts())
    for alert, times in tried.items():
        fired = [len(one["exp_alerts"]) for one in times]
        assert len(fired) == 3, alert
        assert fired[1] > max(fired[0], fired[2]), alert
        assert fired[2] == 0, alert


def test_each_alert_says_how_bad_where_and_what_to_do() -> None:
    for alert, rule in alerts().items():
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "runbook"}, alert
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, alert
        assert said["runbook"] == f"README.md#{alert.lower()}", alert
        if alert != "WeightdAbsent":
            assert "$labels.instance" in said["summary"], alert


def test_rules_go_by_metrics_that_are_there(exposed: set[str]) -> None:
    recorded = {rule["record"] for rule in rules(RECORDINGS)}
    for rule in [*rules(RECORDINGS), *rules(ALERTS)]:
        named = set(re.findall(r"(?:instance:|job:)?\bweightd_\w+(?::\w+)*", rule["expr"]))
        assert named <= exposed | recorded, rule
