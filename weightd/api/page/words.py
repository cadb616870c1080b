"""What the page shows, in the wire's words."""

from __future__ import annotations

import os
from pathlib import Path

from weightd.api.words import eviction_words, in_parts, status_words
from weightd.cache import (
    ArrivalView,
    FetchView,
    ModelView,
    Overview,
    PinView,
    Refusal,
    Snapshot,
    UploadView,
)
from weightd.wire.times import rfc3339, rfc3339_or_none


async def page_words(
    snapshot: Snapshot, seen: Overview, unwell: str | None, socket: Path | None
) -> dict[str, object]:
    """Everything; hundreds of models let other requests go in between."""
    return {
        "now": rfc3339(seen.now),
        "node": os.uname().nodename,
        "socket": None if socket is None else str(socket),
        "status": status_words(snapshot),
        "held_bytes": seen.held_bytes,
        "refetched_bytes": snapshot.refetched_bytes,
        "unwell": unwell,
        "unwritable": seen.unwritable,
        "generations": seen.generations,
        "matching": seen.matching,
        "models": await in_parts(seen.models, _model),
        "arrivals": [
            *map(_fetch, seen.fetches),
            *map(_brought, seen.brought),
            *map(_upload, seen.uploads),
        ],
        "arrivals_total": seen.arrivals,
        "failures": [_failure(one) for one in seen.failures],
        "evictions": [eviction_words(one) for one in seen.evictions],
        "refusals": [_refusal(one) for one in seen.refusals],
    }


def _model(view: ModelView) -> dict[str, object]:
    return {
        "key": str(view.id.key),
        "generation": view.id.digest,
        "current": view.current,
        "bytes": view.bytes,
        "published_at": rfc3339(view.published_at),
        "last_used_at": rfc3339(view.last_used_at),
        "hits": view.hits,
        "source": view.source,
        "pins": view.pins,
        "use": view.use,
        "keepers": [_keeper(one) for one in view.keepers],
        "keepers_total": view.keepers_total,
    }


def _keeper(view: PinView) -> dict[str, object]:
    return {
        "kind": view.kind,
        "holder": view.holder,
        "since": rfc3339(view.since),
        "until": rfc3339_or_none(view.until),
        "forever": view.forever,
        "pid": view.pid,
        "process": view.process,
    }


def _arrival(
    kind: str,
    key: str,
    state: str,
    done: int,
    total: int | None,
    since: float,
    *,
    rate: float | None = None,
    eta: float | None = None,
    source: str | None = None,
    attempts: int = 0,
    retry_at: float | None = None,
) -> dict[str, object]:
    return {
        "kind": kind,
        "key": key,
        "state": state,
        "bytes_done": done,
        "bytes_total": total,
        "rate": rate,
        "eta": eta,
        "since": rfc3339(since),
        "source": source,
        "attempts": attempts,
        "retry_at": rfc3339_or_none(retry_at),
    }


def _fetch(view: FetchView) -> dict[str, object]:
    return _arrival(
        "fetch",
        str(view.key),
        view.state,
        view.bytes_done,
        view.bytes_total,
        view.started_at or view.created_at,
        rate=view.rate,
        eta=view.eta,
        source=view.source,
        attempts=view.attempts,
        retry_at=view.retry_at,
    )


def _brought(view: ArrivalView) -> dict[str, object]:
    state = "waiting" if view.waits else "arriving"
    return _arrival(view.kind, str(view.key), state, view.bytes_done, view.bytes_total, view.since)


def _upload(view: UploadView) -> dict[str, object]:
    done = min(view.written, view.bytes)
    return _arrival("upload", str(view.key), "arriving", done, view.bytes, view.created_at)


def _failure(view: FetchView) -> dict[str, object]:
    error = view.error
    return {
        "key": str(view.key),
        "source": view.source,
        "at": rfc3339_or_none(view.ended_at),
        "code": "unknown" if error is None else error.code,
        "detail": "" if error is None else error.detail,
        "retryable": error is not None and error.retryable,
    }


def _refusal(refusal: Refusal) -> dict[str, object]:
    return {
        "key": str(refusal.key),
        "code": refusal.code,
        "detail": refusal.detail,
        "retryable": refusal.retryable,
        "bytes": refusal.bytes,
        "first_at": rfc3339(refusal.first_at),
        "last_at": rfc3339(refusal.last_at),
        "count": refusal.count,
    }
