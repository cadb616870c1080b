"""What the restricted Pod Security Standard refuses of ours, each with its reason, and no more."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import pytest

from tests.deploy.built import Object, container, only, pod_of, with_pods
from tests.deploy.pod_security import RULES, Finding, findings

HOST_PATHS: Final = {
    Finding("volume types", "cache"),  # weights outlive every pod, at one path for all of them
    Finding("volume types", "sockets"),  # where replicas of other pods reach the daemon
}


def _as_root(name: str) -> set[Finding]:
    """An init container that is root for an instant, to give away a directory kubelet made."""
    rules = ("running as non-root", "running as user", "capabilities")
    return {Finding(rule, name) for rule in rules}


REPLICA: Final = {
    Finding("volume types", "weights"),  # the daemon's directory, read-only
    Finding("volume types", "sockets"),
}

REFUSED: Final[dict[str, set[Finding]]] = {
    "base": HOST_PATHS | _as_root("owner"),
    "prepared-nodes": HOST_PATHS,
    "residency": HOST_PATHS
    | _as_root("owner")
    | _as_root("writable")
    # Directories in which others on the node look for files.
    | {Finding("volume types", "features"), Finding("volume types", "textfile")},
    "sidecar": set(),
    "examples/vllm": REPLICA,
    "examples/llama-cpp": REPLICA,
}

pytestmark = pytest.mark.needs("kustomize")


def test_every_workload_is_judged() -> None:
    assert set(REFUSED) == set(with_pods())


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_restricted_but_for_what_is_listed(name: str) -> None:
    assert findings(pod_of(name)["spec"]) == REFUSED[name]


def test_the_namespace_says_what_host_paths_force() -> None:
    labels = only("base", "Namespace")["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}


@pytest.mark.parametrize("name", REFUSED)
def test_no_pod_has_a_token_or_writes_to_its_image(name: str) -> None:
    spec = pod_of(name)["spec"]
    assert spec["automountServiceAccountToken"] is False
    for one in (*(spec.get("initContainers") or ()), *spec["containers"]):
        # An engine compiles into its own directories, wherever it has those.
        if one["name"] != "vllm":
            assert one["securityContext"]["readOnlyRootFilesystem"] is True, one["name"]


OWN: Final[dict[str, dict[str, Any]]] = {
    "privileged": {"privileged": True},
    "privilege escalation": {"allowPrivilegeEscalation": None},
    "running as non-root": {"runAsNonRoot": False},
    "running as user": {"runAsUser": 0},
    "capabilities": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
    "seccomp": {"seccompProfile": {"type": "Unconfined"}},
    "selinux": {"seLinuxOptions": {"type": "spc_t"}},
    "apparmor": {"appArmorProfile": {"type": "Unconfined"}},
    "proc mount": {"procMount": "Unmasked"},
}
OF_THE_POD: Final[dict[str, dict[str, Any]]] = {
    "host namespaces": {"hostPID": True},
    "volume types": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
    "sysctls": {"securityContext": {"sysctls": [{"name": "kernel.shmmax", "value": "1"}]}},
}
OF_A_CONTAINER: Final[dict[str, dict[str, Any]]] = {
    "host ports": {"ports": [{"containerPort": 1, "hostPort": 1}]},
    "host probes": {"livenessProbe": {"httpGet": {"port": 1, "host": "10.0.0.1"}}},
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_what_breaks_it(rule: str) -> None:
    spec: Object = deepcopy(pod_of("sidecar")["spec"])
    broken = container(spec, "weightd")
    broken["securityContext"] |= OWN.get(rule, {})
    broken |= OF_A_CONTAINER.get(rule, {})
    for name, value in OF_THE_POD.get(rule, {}).items():
        spec[name] = {**spec[name], **value} if name == "securityContext" else value
    assert {one.rule for one in findings(spec)} == {rule}
