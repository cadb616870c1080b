"""One request to its answer: what is asked again, when, and for how long.

A refusal is asked again when the daemon says that it passes and when
(``Retry-After``): it starts, drains, or has too many at once.  ``blocked`` is
not: only the caller knows whether to wait for room, and the daemon does the
waiting.  A daemon that went away is asked again for as long, since it may be
restarted; one that was never there is not, unless that is asked for.
"""

from __future__ import annotations

import time

from weightd.client import doors
from weightd.client.effects import Answer, Begin, Close, Flow, Pause, Request, Settle, Stale

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from weightd.errors import WeightdError

PATIENCE: Final = 10.0
"""How long what passes by itself is asked again, in seconds."""

LEASE_SECONDS: Final = 120.0
"""How long a pin stands by itself: longer than a daemon takes to come back."""

PARTING_SECONDS: Final = 5.0
"""How long whoever leaves goes on asking for an end of what ends by itself, too."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0

_PASSING: Final = frozenset({"starting", "draining", "too-many", "state-unwritable", "unhealthy"})
"""The daemon's own matter; for room, or for an origin, the caller says how long to wait."""


class Asking:
    """Asks at one socket.

    ``patience`` bounds, in seconds, how long one call goes on asking once it
    was refused; ``expected`` says to wait also for a daemon that has not
    answered yet.
    """

    def __init__(self, patience: float = PATIENCE, expected: bool = False) -> None:
        self.patience = patience
        self.met = expected

    def answer(self, request: Request, allowed: int = 0) -> Flow[Answer]:
        """An answer below 400, or with the one status above that is ``allowed``.

        Raises the error that any other tells of, or `Unreachable`.
        """
        return (yield from self.asked(request, _exchange, allowed))

    def document(self, request: Request) -> Flow[Any]:
        """The JSON of an answer."""
        answer = yield from self.answer(request)
        return parsed(answer.body)

    def nothing(self, request: Request) -> Flow[None]:
        """Have it done, whatever the answer says."""
        yield from self.answer(request)

    def parting(self, request: Request) -> Flow[None]:
        """Have something done on the way out, which is not to take long whatever the patience."""
        briefly = Asking(min(self.patience, PARTING_SECONDS), self.met)
        yield from briefly.nothing(request.within(PARTING_SECONDS))

    def asked(
        self, request: Request, attempt: Callable[[Request], Flow[Answer]], allowed: int = 0
    ) -> Flow[Answer]:
        """The same, where one ``attempt`` is more than an exchange."""
        refused: _Refusals | None = None
        while True:
            pause: float | None
            failure: Exception
            try:
                answer = yield from attempt(request)
            except ConnectionError as error:
                pause, failure = self._until_back(error, refused), error
            else:
                self.met = True
                if answer.status < 400 or answer.status == allowed:
                    return answer
                pause, failure = _until_it_passes(answer)
            refused = refused or _Refusals(self.patience)
            if pause is None or not refused.may_wait(pause):
                raise failure
            yield Pause(pause)

    def _until_back(self, error: ConnectionError, refused: _Refusals | None) -> float | None:
        """How long to wait for a daemon that is not there; None when that is in vain."""
        if not self.met or not getattr(error, "retryable", False):
            return None
        return _FIRST_PAUSE if refused is None else refused.next_pause()


def _exchange(request: Request) -> Flow[Answer]:
    """Send a request and have its answer, on a connection that may have been used before.

    The daemon may have closed that one while it was idle: nothing of the request
    was read then, so it is sent once more.
    """
    try:
        return (yield from _exchange_on(request, fresh=False))
    except Stale:
        return (yield from _exchange_on(request, fresh=True))


def _exchange_on(request: Request, fresh: bool) -> Flow[Answer]:
    pending = yield Begin(request, fresh)
    try:
        answer: Answer | None = yield Settle(pending, request.patience)
        if answer is None:
            raise doors.silent(pending.place, request.patience)
        return answer
    finally:
        yield Close(pending)


class _Refusals:
    """The refusals of one call, one after another."""

    def __init__(self, patience: float) -> None:
        self._until = time.monotonic() + patience
        self._pause = _FIRST_PAUSE

    def next_pause(self) -> float:
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return self._pause

    def may_wait(self, seconds: float) -> bool:
        return time.monotonic() + seconds <= self._until


def _until_it_passes(answer: Answer) -> tuple[float | None, WeightdError]:
    """When to ask again, None when that is in vain or not ours to decide; and the error."""
    from weightd.client.problems import error_of, retry_after

    error = error_of(answer)
    after = retry_after(answer)
    passes = error.retryable and after is not None and error.code in _PASSING
    return (float(after or 0) if passes else None), error


def parsed(body: bytes) -> Any:
    """The JSON of an answer, None for an empty one.  Raises Refused when it is no JSON."""
    import json

    try:
        return json.loads(body) if body else None
    except ValueError:
        from weightd.client.faults import Refused

        shown = body[:200].decode("utf-8", "replace")
        raise Refused("http", f"The daemon answered what is no JSON: {shown}") from None
