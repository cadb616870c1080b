"""What the log says of requests: every one while debugging, and else what its operator would ask.

What the cache does for a request, and what it admits or refuses for lack of room, has a line of
its own already (`weightd.cache.events`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.types import Scope

from weightd.errors import WeightdError

_log = logging.getLogger(__name__)

LEVELS: Final[Mapping[str, int]] = {
    "io-error": logging.WARNING,
    "state-unwritable": logging.WARNING,
    "unhealthy": logging.WARNING,
    "busy": logging.INFO,
    "digest-mismatch": logging.INFO,
    "forbidden": logging.INFO,
    "in-use": logging.INFO,
    "invalid-archive": logging.INFO,
    "pinned": logging.INFO,
    "stalled": logging.INFO,
    "too-many": logging.INFO,
    "unauthorized": logging.INFO,
}
"""How refusals are logged, by their code; any other is for debugging."""


def tell_refusal(
    error: WeightdError,
    method: str | None = None,
    route: str | None = None,
    parameters: Mapping[str, str] | None = None,
) -> None:
    """One line, if it is worth one; without a ``route`` when it came before there was any."""
    level = LEVELS.get(error.code)
    if level is not None and _log.isEnabledFor(level):
        figures = {"code": error.code, "method": method, "route": route, **_named(parameters)}
        _log.log(level, "a request was refused", extra={**figures, "reason": error.detail})


def are_requests_told() -> bool:
    """Whether every request has its line now."""
    return _log.isEnabledFor(logging.DEBUG)


def tell_request(
    scope: Scope,
    route: str,
    status: int,
    fields: Sequence[tuple[bytes, bytes]],
    seconds: float,
) -> None:
    """One line; ``bytes`` is the length of the answer as its header ``fields`` say it.

    A ``status`` of 0 is of a caller who left before there was one.
    """
    figures: dict[str, object] = {
        "method": scope["method"],
        "route": route,
        **_named(scope["path_params"]),
        "status": status or None,
        "bytes": _length(fields),
        "received": _length(scope["headers"]),
        "seconds": round(seconds, 6),
    }
    _log.debug("request", extra=figures)


def _named(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """What of a path is logged: whose and what, and no file's name."""
    given = parameters or {}
    return {name: given[name] for name in ("key", "holder") if name in given}


def _length(fields: Sequence[tuple[bytes, bytes]]) -> int | None:
    found = next((value for name, value in fields if name == b"content-length"), b"")
    return int(found) if len(found) < 20 and found.isdigit() else None
