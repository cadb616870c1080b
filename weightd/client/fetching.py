"""A fetch from the wish to the model: asked for, followed, and asked for again.

The request itself waits for room, as long as the caller would, and its
connection says to the daemon that somebody stays.  How far it is, is followed
on another one meanwhile.  Once the model is admitted the request is answered,
and the job is followed to its end however long that takes.
"""

from __future__ import annotations

import time
from typing import Any, Final

from weightd import errors
from weightd.client import calls, doors, flows
from weightd.client.asking import Asking, parsed
from weightd.client.effects import Answer, Begin, Close, Flow, Pause, Request, Settle
from weightd.client.mount import Mount
from weightd.client.records import Job, Model, read
from weightd.client.times import epoch_or_none

_AT_ONCE: Final = 0.2
"""How long an answer that needs no job may take, in seconds."""

_AGAIN: Final = 2.0
"""Seconds until an origin that failed is asked again, where it does not say."""


def fetched(asking: Asking, mount: Mount, wanted: calls.Wanted, wait: float) -> Flow[Model]:
    """The model, pinned for the holder; tells each `Job` as it goes."""
    told = yield from fetched_document(asking, wanted, wait)
    return (yield from mount.placed(read(Model, told)))


def fetched_document(asking: Asking, wanted: calls.Wanted, wait: float) -> Flow[Any]:
    """The same as the daemon tells it.

    For ``wait`` seconds what passes by itself is asked for again: no room, an
    origin that fails, a job of another source.  Raises InvalidRequest for a
    ``wait`` that is none, which would have no end.
    """
    if not wait >= 0:
        raise errors.InvalidRequest("wait", f"{wait!r} is not a number of seconds such as 30")
    until = time.monotonic() + wait
    while True:
        try:
            told = yield from _once(asking, wanted, max(0.0, until - time.monotonic()))
        except errors.WeightdError as error:
            pause = _passes_in(error)
            if pause is None or time.monotonic() + pause >= until:
                raise
            if isinstance(error, errors.Busy):
                yield from _followed(asking, error.job)
            yield Pause(pause)
        else:
            if told is not None:
                return told


def _passes_in(error: errors.WeightdError) -> float | None:
    """In how many seconds to ask again; None when that is in vain."""
    if isinstance(error, errors.Busy):
        return 0.0
    waited_for = (errors.Blocked, errors.OriginFailed, errors.OriginTimeout, errors.TooMany)
    if isinstance(error, waited_for) and error.retryable:
        return float(error.retry_after or _AGAIN)
    return None


def _once(asking: Asking, wanted: calls.Wanted, wait: float) -> Flow[Any]:
    """The record, or None when the daemon went away under the job and is to be asked again."""
    answer = yield from asking.asked(calls.fetch(wanted, wait), lambda one: _watched(asking, one))
    told = parsed(answer.body)
    if answer.status != 202:
        return told
    job = yield from _followed(asking, told["id"])
    if job is None:
        return None
    return (yield from _outcome(asking, wanted, job))


def _watched(asking: Asking, request: Request) -> Flow[Answer]:
    """The answer to a fetch, telling meanwhile how far its job is."""
    pending = yield Begin(request)
    until = time.monotonic() + request.patience
    try:
        answer: Answer | None = yield Settle(pending, _AT_ONCE)
        while answer is None:
            if time.monotonic() > until:
                raise doors.silent(pending.place, request.patience)
            job = yield from _under_way(asking, request)
            if job is not None:
                yield from _followed(asking, job)
            answer = yield Settle(pending, _AT_ONCE)
        return answer
    finally:
        yield Close(pending)


def _under_way(asking: Asking, request: Request) -> Flow[str | None]:
    """The id of the job that a request is about, None when it has none yet."""
    import json

    key = json.loads(request.content)["key"]
    told = yield from asking.document(calls.fetches())
    ended = ("done", "failed", "cancelled")
    ids = (one["id"] for one in told["fetches"] if one["key"] == key and one["state"] not in ended)
    return next(ids, None)


def _followed(asking: Asking, id: str) -> Flow[Any]:
    """Tell how far a job is until it ends, and answer it; None when the daemon went away."""
    try:
        last = yield from flows.lines(asking, calls.job_events(id), _job_told)
    except (ConnectionError, errors.UnknownFetch):
        return None
    return last["job"] if last is not None and last.get("outcome") != "draining" else None


def _job_told(line: Any) -> Job:
    return read(Job, line["job"])


def _outcome(asking: Asking, wanted: calls.Wanted, job: Any) -> Flow[Any]:
    """The record of a job that has ended.  Raises what it failed with."""
    if job["state"] != "done":
        raise _failure(job)
    record = job["record"]
    if wanted.holder is None:
        return record
    # Renews the pin that the job took, and has the files beside the rest.
    renewal = calls.pin(wanted.holder, wanted.key, wanted.ttl, record["generation"])
    return (yield from asking.document(renewal))


def _failure(job: Any) -> errors.WeightdError:
    from weightd.client.faults import Refused
    from weightd.client.problems import error_from

    problem = job["problem"]
    if problem is None:
        return Refused("fetch", f"The fetch of {job['key']} ended as {job['state']}")
    retry_at = epoch_or_none(job["retry_at"])
    after = None if retry_at is None else max(1, round(retry_at - time.time() + 0.5))
    return error_from(problem, after)
