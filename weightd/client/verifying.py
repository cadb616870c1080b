"""A verification, followed to its end; begun anew when the daemon went away under it."""

from __future__ import annotations

import time
from typing import Any, Final

from weightd import errors
from weightd.client import calls, flows
from weightd.client.asking import Asking
from weightd.client.effects import Flow, Pause
from weightd.client.problems import error_from
from weightd.client.records import Verification, read

_AGAIN: Final = 0.5
"""Seconds until a daemon that went away is asked again."""


def verified(asking: Asking, key: str) -> Flow[Verification]:
    """What was found; tells each `Verification` as it goes."""
    told = yield from verified_document(asking, key)
    return read(Verification, told["verification"])


def verified_document(asking: Asking, key: str) -> Flow[Any]:
    """The last line, as the daemon tells it; its outcome is ``whole`` or ``damaged``.

    Raises GenerationGone, and what a verification failed with.
    """
    until: float | None = None

    def shown(line: Any) -> Verification:
        nonlocal until
        until = None
        return read(Verification, line["verification"])

    while True:
        pause: float = _AGAIN
        failure: Exception = errors.Draining()
        try:
            last = yield from flows.lines(asking, calls.verify(key), shown)
        except (errors.Starting, errors.Draining, errors.TooMany) as error:
            pause, failure = float(error.retry_after or _AGAIN), error
        except ConnectionError as error:
            if not (asking.met and getattr(error, "retryable", False)):
                raise
            failure = error
        else:
            if last is not None and last["outcome"] != "draining":
                return _found(last)
        now = time.monotonic()
        until = now + asking.patience if until is None else until
        if now + pause > until:
            raise failure
        yield Pause(pause)


def _found(last: Any) -> Any:
    verification = last["verification"]
    if last["outcome"] == "gone":
        raise errors.GenerationGone(verification["key"], verification["generation"])
    if last["outcome"] == "failed":
        raise error_from(verification["problem"])
    return last
