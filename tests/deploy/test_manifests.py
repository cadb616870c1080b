"""Everything that is built is a valid object of Kubernetes, or of the operator it is for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from kubernetes_validate import validate

from tests.deploy.built import DEPLOY, NAMES, Object, built, only, pod_of

OLDEST: Final = "1.29"
"""The first that has native sidecars switched on."""

NEWEST: Final = "1.37"

OPERATORS: Final = ("monitoring.coreos.com/v1",)
"""Their schemas are no part of Kubernetes; what is of them is looked at below."""

pytestmark = pytest.mark.needs("kustomize")


@pytest.mark.parametrize("name", NAMES)
def test_every_object_is_valid(name: str) -> None:
    objects = built(name)
    assert objects
    for one in objects:
        if one["apiVersion"] not in OPERATORS:
            for version in (OLDEST, NEWEST):
                validate(one, version, strict=True)


def test_what_is_built_is_known() -> None:
    assert {name: sorted(one["kind"] for one in built(name)) for name in NAMES} == {
        "base": [*_DAEMON],
        "prepared-nodes": [*_DAEMON],
        "residency": [*_DAEMON],
        "monitoring": ["PodMonitor"],
        "sidecar": ["Service", "StatefulSet"],
        "examples/vllm": ["Deployment"],
        "examples/llama-cpp": ["Deployment"],
    }


_DAEMON: Final = (
    "ConfigMap",
    "DaemonSet",
    "Namespace",
    "NetworkPolicy",
    "PriorityClass",
    "ServiceAccount",
)


def test_the_config_map_is_the_one_that_is_mounted() -> None:
    # Its name has a hash of its content, by which a change restarts the daemons.
    name = only("base", "ConfigMap")["metadata"]["name"]
    assert name.startswith("weightd-")
    volumes = pod_of("base")["spec"]["volumes"]
    assert [one["configMap"]["name"] for one in volumes if "configMap" in one] == [name]


@pytest.mark.parametrize("name", ["base", "sidecar"])
def test_the_pod_monitor_finds_the_pods(name: str) -> None:
    # No schema of it is to be had offline: these are the fields that it uses, one by one.
    monitor = only("monitoring", "PodMonitor")["spec"]
    assert set(monitor) == {"namespaceSelector", "selector", "podMetricsEndpoints"}
    assert monitor["namespaceSelector"] == {"any": True}
    pod = pod_of(name)
    assert set(monitor["selector"]["matchLabels"].items()) <= set(pod["metadata"]["labels"].items())
    [found] = monitor["podMetricsEndpoints"]
    endpoint = dict(found)
    assert endpoint.pop("path") == "/metrics"
    assert endpoint.pop("port") in _port_names(pod["spec"])
    assert _seconds(endpoint.pop("scrapeTimeout")) < _seconds(endpoint.pop("interval"))
    [relabeling] = endpoint.pop("relabelings")
    assert set(relabeling) == {"action", "sourceLabels", "targetLabel"}
    assert not endpoint


def test_the_network_policy_is_for_the_scrape_port_alone() -> None:
    policy = only("base", "NetworkPolicy")["spec"]
    labels = pod_of("base")["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    [rule] = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["metrics"]
    assert policy["policyTypes"] == ["Ingress"]


def _port_names(spec: Object) -> set[str]:
    every = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return {port["name"] for one in every for port in one.get("ports", ())}


def _seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text[:-1])


@pytest.mark.parametrize("page", sorted(DEPLOY.rglob("*.md")), ids=lambda page: page.name)
def test_the_pages_link_to_what_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    assert links
    for link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), link
