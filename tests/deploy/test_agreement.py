"""Manifests, settings and daemon agree: on images, users, paths, ports, variables and times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import weightd
from tests.deploy.built import (
    DEPLOY,
    NAMES,
    Object,
    built,
    container,
    containers,
    only,
    pod_of,
    variables,
)
from tests.deploy.built import with_pods as _with_pods
from weightd.api import Limits
from weightd.cache.pulse import PATIENCE
from weightd.daemon.service import _LAST_ANSWERS
from weightd.labels import label_of
from weightd.origins.allowing import check_allowed
from weightd.origins.contract import Trust
from weightd.origins.reference import parse_reference
from weightd.settings import Settings, load, options

IMAGE: Final = f"registry.example/weightd:{weightd.__version__}"
USER: Final = 10001
DAEMONS: Final = ("base", "prepared-nodes", "residency")
REPLICAS: Final = ("examples/vllm", "examples/llama-cpp")
WITH_PODS: Final = tuple(_with_pods())

pytestmark = pytest.mark.needs("kustomize")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """What the config map says."""
    [(name, text)] = only("base", "ConfigMap")["data"].items()
    args = container(pod_of("base")["spec"], "weightd")["args"]
    assert args == ["serve", "--config", f"/etc/weightd/{name}"]
    config = tmp_path / name
    config.write_text(text)
    return load({}, config).settings


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_image_of_ours_is_of_this_version(name: str) -> None:
    images = [one["image"] for one in containers(pod_of(name)["spec"])]
    assert [one for one in images if "weightd" in one]
    assert {one for one in images if "weightd" in one} == {IMAGE}


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_variable_of_ours_is_a_setting_or_the_clients(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clients = {"WEIGHTD_SOCKET", "WEIGHTD_ROOT", "WEIGHTD_WAIT"}
    known = {one.variable for one in options()}
    for one in containers(pod_of(name)["spec"]):
        told = {key: text for key, text in variables(one).items() if key.startswith("WEIGHTD_")}
        if one["name"] == "weightd":
            assert set(told) <= known
            for key, text in told.items():
                monkeypatch.setenv(key, text)
            load({}, tmp_path / "none.toml")
        else:
            assert set(told) <= clients


@pytest.mark.parametrize("name", DAEMONS)
def test_the_daemon_has_its_directories_where_the_node_has_them(
    name: str, settings: Settings
) -> None:
    spec = pod_of(name)["spec"]
    paths = host_paths(spec)
    assert {str(settings.root), str(settings.socket.parent)} <= set(paths)
    assert settings.replica_socket is not None
    assert settings.replica_socket.parent == settings.socket.parent
    for one in containers(spec):
        for place, host in mounts(spec, one).items():
            assert host is None or place == host, (one["name"], place)
    assert set(paths) <= set(mounts(spec, container(spec, "weightd")))


@pytest.mark.parametrize("name", REPLICAS)
def test_a_replica_mounts_what_the_daemon_answers(name: str, settings: Settings) -> None:
    spec = pod_of(name)["spec"]
    engine = spec["containers"][0]
    given = mounts(spec, engine)
    assert given[str(settings.root)] == str(settings.root)
    assert settings.replica_socket is not None
    # The directory; no mount is a socket's own.
    assert given[str(settings.socket.parent)] == str(settings.socket.parent)
    assert not {str(settings.socket), str(settings.replica_socket)} & set(given)
    assert variables(engine)["WEIGHTD_SOCKET"] == str(settings.replica_socket)
    assert spec["securityContext"]["supplementalGroups"] == [USER]
    assert settings.file_mode & 0o040
    source = engine["command"][engine["command"].index("--from") + 1]
    check_allowed(parse_reference(source), Trust(allowed=settings.allow_origins or ()))


@pytest.mark.parametrize("name", REPLICAS)
def test_a_replica_prefers_the_nodes_that_have_its_model(name: str) -> None:
    spec = pod_of(name)["spec"]
    command = spec["containers"][0]["command"]
    key = command[command.index("--from") - 1]
    [preferred] = spec["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert preferred["preference"]["matchExpressions"] == [
        {"key": label_of(key), "operator": "Exists"}
    ]


def test_only_the_daemon_itself_has_the_whole_api(settings: Settings) -> None:
    assert settings.socket_mode == 0o600


def test_the_sidecar_finds_the_daemon_beside_it() -> None:
    spec = pod_of("sidecar")["spec"]
    daemon, engine = container(spec, "weightd"), container(spec, "vllm")
    assert variables(daemon)["WEIGHTD_SOCKET"] == variables(engine)["WEIGHTD_SOCKET"]
    places = {mount["mountPath"]: mount["name"] for mount in daemon["volumeMounts"]}
    for mount in engine["volumeMounts"]:
        if mount["mountPath"] in ("/var/cache/weightd", "/run/weightd"):
            assert places.pop(mount["mountPath"]) == mount["name"]
    assert list(places) == ["/tmp"]
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"] == USER


@pytest.mark.parametrize("name", DAEMONS)
def test_the_init_containers_give_to_the_daemons_user(name: str) -> None:
    spec = pod_of(name)["spec"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (
        USER,
        USER,
    )
    for one in spec.get("initContainers") or ():
        assert str(USER) in one["command"][2]


@pytest.mark.parametrize("name", [*DAEMONS, "sidecar"])
def test_the_listener_is_where_the_probes_ask(name: str, settings: Settings) -> None:
    daemon = container(pod_of(name)["spec"], "weightd")
    [port] = daemon["ports"]
    listen = settings.listen if name != "sidecar" else None
    assert f"0.0.0.0:{port['containerPort']}" == (
        str(listen) if listen else variables(daemon)["WEIGHTD_LISTEN"]
    )
    for kind, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        probe = daemon[f"{kind}Probe"]
        assert probe["httpGet"] == {"path": path, "port": port["name"]}
        # It says by itself that the disk hangs, when it is asked for long enough.
        assert probe["timeoutSeconds"] > Limits().probe_timeout


@pytest.mark.parametrize("name", [*DAEMONS, "sidecar"])
def test_the_kubelet_waits_longer_than_the_drain(name: str, settings: Settings) -> None:
    grace = pod_of(name)["spec"]["terminationGracePeriodSeconds"]
    assert grace >= settings.drain_timeout + _LAST_ANSWERS + 10


@pytest.mark.parametrize("name", [*DAEMONS, "sidecar"])
def test_the_kubelet_is_as_patient_as_systemds_watchdog(name: str) -> None:
    """A disk that is merely slow is no reason to end the daemon, whoever watches it."""
    unit = (DEPLOY.parent / "systemd" / "weightd.service").read_text()
    [minutes] = re.findall(r"^WatchdogSec=(\d+)min$", unit, re.MULTILINE)
    probe = container(pod_of(name)["spec"], "weightd")["livenessProbe"]
    seconds = PATIENCE + probe.get("periodSeconds", 10) * probe["failureThreshold"]
    assert seconds >= 60 * int(minutes)


def test_every_name_of_ours_below_kubernetes_is_the_same() -> None:
    for name in NAMES:
        for one in built(name):
            assert one["metadata"].get("namespace") in ("weightd", "serving", None)


def host_paths(spec: Object) -> dict[str, str]:
    """The node's directories that a pod has, and the names of their volumes."""
    return {one["hostPath"]["path"]: one["name"] for one in spec["volumes"] if one.get("hostPath")}


def mounts(spec: Object, one: Object) -> dict[str, str | None]:
    """Where a container has each volume, and which of the node's directories that is."""
    by_name = {volume: path for path, volume in host_paths(spec).items()}
    return {mount["mountPath"]: by_name.get(mount["name"]) for mount in one["volumeMounts"]}
