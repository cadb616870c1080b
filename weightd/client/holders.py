"""A name for a hold of this process that no other on the node has, in whatever container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

HOLDER_VARIABLE: Final = "WEIGHTD_HOLDER"
POD_VARIABLE: Final = "POD_UID"
"""What a pod's manifest gives by the downward API (``metadata.uid``)."""

_START_FIELD: Final = 19
"""Where in /proc/PID/stat, counted after the name in brackets, the time of its start stands."""

_NAMESPACE: Final = re.compile(r"pid:\[(\d+)\]")


def own_holder(environ: Mapping[str, str] = os.environ) -> str:
    """The name that is given, or one made of where and when this process began.

    A pid alone names two processes: every container has a pid 1, on a network
    that may be the host's too.  Its namespace tells them apart, its start those
    that have one pid after another, and the pod or the boot what outlives
    neither.  Raises InvalidRequest for a variable that is no name.
    """
    given = named_holder(environ)
    if given is not None:
        return given
    own = f"{_namespace()}.{os.getpid()}.{_started()}.{os.urandom(4).hex()}"
    pod = environ.get(POD_VARIABLE)
    return _checked(POD_VARIABLE, f"{pod}:{own}") if pod else f"{_boot()[:13]}:{own}"


def named_holder(environ: Mapping[str, str] = os.environ) -> str | None:
    """The name that is given.  Raises InvalidRequest."""
    given = environ.get(HOLDER_VARIABLE)
    return _checked(HOLDER_VARIABLE, given) if given else None


def _checked(variable: str, name: str) -> str:
    from weightd.errors import InvalidRequest
    from weightd.model import parse_holder

    try:
        return parse_holder(name)
    except InvalidRequest as error:
        raise InvalidRequest(variable, error.reason) from None


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _namespace() -> str:
    """The number of this process's pid namespace."""
    told = _NAMESPACE.fullmatch(os.readlink("/proc/self/ns/pid"))
    return told[1] if told else "0"


def _started() -> str:
    """When this process began, in clock ticks since the boot."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        # The name may contain blanks and brackets itself.
        return file.read().rpartition(")")[2].split()[_START_FIELD]
