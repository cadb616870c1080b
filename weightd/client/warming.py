"""A warming, followed to its end."""

from __future__ import annotations

from typing import Any

from weightd import errors
from weightd.client import calls, flows
from weightd.client.asking import Asking
from weightd.client.effects import Flow
from weightd.client.problems import error_from
from weightd.client.records import Warmed, Warming, read


def warmed(asking: Asking, key: str) -> Flow[Warmed]:
    """How much of a model is in memory; tells each `Warming` as it goes.

    Raises what a warming is refused or fails with, Draining among it.
    """
    last = yield from flows.lines(asking, calls.warm(key), _shown)
    if last is None or last["outcome"] == "draining":
        raise errors.Draining
    if last["outcome"] == "failed":
        raise error_from(last["warming"]["problem"])
    return Warmed(last["warming"]["bytes_total"], last["warming"]["cached"])


def _shown(line: Any) -> Warming:
    return read(Warming, line["warming"])
