"""The rules for Prometheus, as the operator takes them."""

from __future__ import annotations

import subprocess

import yaml

from tests.deploy.built import DEPLOY, KUBERNETES


def test_the_operator_is_given_the_rules_that_there_are() -> None:
    script = KUBERNETES / "monitoring" / "prometheusrule.sh"
    ran = subprocess.run(["sh", script], capture_output=True, text=True, check=True, cwd="/")
    rule = yaml.safe_load(ran.stdout)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["metadata"]["namespace"] == "weightd"
    assert set(rule["spec"]) == {"groups"}
    written = [
        group
        for name in ("recordings", "alerts")
        for group in yaml.safe_load((DEPLOY / "prometheus" / f"{name}.yaml").read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == written
