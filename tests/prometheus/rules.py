"""The rule files as they are delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

import weightd

HERE: Final = Path(weightd.__file__).parents[1]
RECORDINGS: Final = HERE / "deploy/prometheus/recordings.yaml"
ALERTS: Final = HERE / "deploy/prometheus/alerts.yaml"


def rules(file: Path) -> list[dict[str, Any]]:
    """The rules of all groups of a file, in order."""
    groups = yaml.safe_load(file.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert, by name."""
    return {rule["alert"]: rule for rule in rules(ALERTS)}


def cases() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What is tried of each alert: its name, and what is expected at which times."""
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        for test in yaml.safe_load(file.read_text())["tests"]:
            yield test["name"], test["alert_rule_test"]
