"""The manifests below `deploy/kubernetes`, as kustomize builds them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

import weightd
from tests.parts import kustomize

DEPLOY: Final = Path(weightd.__file__).parents[1] / "deploy"
KUBERNETES: Final = DEPLOY / "kubernetes"

NAMES: Final = tuple(
    sorted(
        str(one.parent.relative_to(KUBERNETES)) for one in KUBERNETES.rglob("kustomization.yaml")
    )
)
"""Every directory that can be built."""

Object: TypeAlias = dict[str, Any]

_HAVE_PODS: Final = ("DaemonSet", "Deployment", "StatefulSet")


@cache
def built(name: str) -> tuple[Object, ...]:
    """The objects of a directory; one that does not build fails the test."""
    builder = kustomize()
    assert builder is not None
    ran = subprocess.run(
        [*builder, str(KUBERNETES / name)], capture_output=True, text=True, check=False
    )
    # What is deprecated is warned of there.
    assert (ran.returncode, ran.stderr) == (0, "")
    return tuple(yaml.safe_load_all(ran.stdout))


def only(name: str, kind: str) -> Object:
    """The one object of a kind."""
    [found] = [one for one in built(name) if one["kind"] == kind]
    return found


def pod_of(name: str) -> Object:
    """What the one workload of a directory makes: `metadata` and `spec` of its pods."""
    [template] = [one["spec"]["template"] for one in built(name) if one["kind"] in _HAVE_PODS]
    assert isinstance(template, dict)
    return template


def with_pods() -> Iterator[str]:
    """The directories that start something."""
    for name in NAMES:
        if any(f"kind: {kind}" in _text(name) for kind in _HAVE_PODS):
            yield name


def _text(name: str) -> str:
    return "".join(file.read_text() for file in (KUBERNETES / name).glob("*.yaml"))


def containers(spec: Object) -> list[Object]:
    """Every container of a pod, those that run first before the others."""
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def container(spec: Object, name: str) -> Object:
    [found] = [one for one in containers(spec) if one["name"] == name]
    return found


def variables(container: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", ())}
