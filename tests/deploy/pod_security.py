"""The restricted Pod Security Standard, rule by rule, as findings in a pod's spec.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ is what it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.deploy.built import Object, containers

_VOLUMES: Final = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_SELINUX_TYPES: Final = {
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
}
_SECCOMP: Final = {"RuntimeDefault", "Localhost"}
_SYSCTLS: Final = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}


class Finding(NamedTuple):
    """What breaks which rule: a volume, a container, or the pod itself."""

    rule: str
    where: str


def _host_namespaces(spec: Object) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name


def _volume_types(spec: Object) -> Iterator[str]:
    for volume in spec.get("volumes", ()):
        if not set(volume) - {"name"} <= _VOLUMES:
            yield volume["name"]


def _sysctls(spec: Object) -> Iterator[str]:
    for one in spec.get("securityContext", {}).get("sysctls", ()):
        if one["name"] not in _SYSCTLS:
            yield one["name"]


def _privileged(spec: Object) -> Iterator[str]:
    yield from _where(spec, lambda own, _: bool(own.get("privileged")))


def _escalation(spec: Object) -> Iterator[str]:
    yield from _where(spec, lambda own, _: own.get("allowPrivilegeEscalation") is not False)


def _non_root(spec: Object) -> Iterator[str]:
    yield from _where(spec, lambda _, both: both.get("runAsNonRoot") is not True)


def _user(spec: Object) -> Iterator[str]:
    yield from _where(spec, lambda _, both: both.get("runAsUser") == 0)


def _capabilities(spec: Object) -> Iterator[str]:
    def breaks(own: Object, _: Object) -> bool:
        capabilities = own.get("capabilities", {})
        dropped = "ALL" in capabilities.get("drop", ())
        return not dropped or not set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"}

    yield from _where(spec, breaks)


def _seccomp(spec: Object) -> Iterator[str]:
    yield from _where(
        spec, lambda _, both: both.get("seccompProfile", {}).get("type") not in _SECCOMP
    )


def _selinux(spec: Object) -> Iterator[str]:
    def breaks(_: Object, both: Object) -> bool:
        options = both.get("seLinuxOptions", {})
        return options.get("type", "") not in _SELINUX_TYPES or bool(
            options.get("user") or options.get("role")
        )

    yield from _where(spec, breaks)


def _apparmor(spec: Object) -> Iterator[str]:
    yield from _where(
        spec, lambda _, both: both.get("appArmorProfile", {}).get("type") == "Unconfined"
    )


def _proc_mount(spec: Object) -> Iterator[str]:
    yield from _where(spec, lambda own, _: own.get("procMount", "Default") != "Default")


def _host_ports(spec: Object) -> Iterator[str]:
    for one in containers(spec):
        if any(port.get("hostPort") for port in one.get("ports", ())):
            yield one["name"]


def _host_probes(spec: Object) -> Iterator[str]:
    for one in containers(spec):
        probes = [one.get(f"{kind}Probe", {}) for kind in ("startup", "liveness", "readiness")]
        acts = [*probes, *one.get("lifecycle", {}).values()]
        kinds = ("httpGet", "tcpSocket")
        if any("host" in act.get(kind, {}) for act in acts for kind in kinds):
            yield one["name"]


def _where(spec: Object, breaks: Callable[[Object, Object], bool]) -> Iterator[str]:
    """The containers of which ``breaks`` says so, of their own context and of both merged."""
    of_pod = spec.get("securityContext", {})
    for one in containers(spec):
        own = one.get("securityContext", {})
        if breaks(own, {**of_pod, **own}):
            yield one["name"]


RULES: Final[dict[str, Callable[[Object], Iterator[str]]]] = {
    "host namespaces": _host_namespaces,
    "volume types": _volume_types,
    "sysctls": _sysctls,
    "privileged": _privileged,
    "privilege escalation": _escalation,
    "running as non-root": _non_root,
    "running as user": _user,
    "capabilities": _capabilities,
    "seccomp": _seccomp,
    "selinux": _selinux,
    "apparmor": _apparmor,
    "proc mount": _proc_mount,
    "host ports": _host_ports,
    "host probes": _host_probes,
}


def findings(spec: Object) -> set[Finding]:
    """What the restricted standard refuses in a pod."""
    return {Finding(rule, where) for rule, look in RULES.items() for where in look(spec)}
