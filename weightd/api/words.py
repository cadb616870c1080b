"""The cache's answers in the wire's words.

Built directly, and not validated again on the way out: lookups are the hot
path.  The tests hold every one against its shape in `weightd.wire.answers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from weightd import __version__
from weightd.api.problems import document, holder_figures
from weightd.api.reading import prefers_text
from weightd.cache.fetching.terms import FetchView
from weightd.cache.records import (
    Event,
    PinOutcome,
    PinView,
    Record,
    Snapshot,
    UploadView,
    Verdict,
    VerifyView,
    WarmView,
)
from weightd.model import Eviction
from weightd.wire.times import rfc3339, rfc3339_or_none

T = TypeVar("T")

AT_ONCE: Final = 250
"""Records that are put into words before other requests get their turn."""


def upload_words(view: UploadView) -> dict[str, object]:
    return {
        "id": view.id,
        "key": str(view.key),
        "path": str(view.path),
        "relative_path": view.relative_path,
        "bytes": view.bytes,
        "written": view.written,
        "created_at": rfc3339(view.created_at),
        "expires_at": rfc3339(view.expires_at),
    }


async def in_parts(
    records: Sequence[T], word: Callable[[T], dict[str, object]]
) -> list[dict[str, object]]:
    """Many records in words, where thousands let every other request go before the next part."""
    words: list[dict[str, object]] = []
    for first in range(0, len(records), AT_ONCE):
        if first:
            await asyncio.sleep(0)
        words += map(word, records[first : first + AT_ONCE])
    return words


def json_answer(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """An answer with JSON, which nobody may keep: it is true only now."""
    return Response(
        to_json(content) + b"\n",
        status_code=status,
        headers={"Cache-Control": "no-store"} | (headers or {}),
        media_type="application/json",
    )


def record_answer(
    request: Request,
    record: Record,
    status: int = 200,
    *,
    more: dict[str, object] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A record, or its path alone when the client prefers text."""
    varying = {"Vary": "Accept"} | (headers or {})
    if prefers_text(request):
        return Response(
            str(record.path),
            status_code=status,
            headers={"Cache-Control": "no-store"} | varying,
            media_type="text/plain",
        )
    return json_answer(full_record(record) | (more or {}), status, varying)


def listed_record(record: Record) -> dict[str, object]:
    """A record without its files."""
    manifest = record.manifest
    files = manifest.files
    path = str(record.path)
    return {
        "key": str(manifest.key),
        "generation": manifest.digest,
        "current": record.current,
        "path": path,
        "relative_path": record.relative_path,
        "file": f"{path}/{files[0].path}" if len(files) == 1 else None,
        "bytes": manifest.bytes,
        "digest": manifest.digest,
        "source": manifest.source,
        "revision": manifest.revision,
        "pins": record.pins,
        "held": record.held,
        "published_at": rfc3339(manifest.published_at),
        "last_used_at": rfc3339(record.last_used_at),
        "hits": record.hits,
    }


def full_record(record: Record) -> dict[str, object]:
    """A record with its files."""
    answer = listed_record(record)
    answer["files"] = [
        {"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256}
        for entry in record.manifest.files
    ]
    return answer


def pin_words(outcome: PinOutcome) -> dict[str, object]:
    """What the answer to a pin says beyond the record."""
    pin = outcome.pin
    return {
        "holder": pin.holder,
        "since": rfc3339(pin.since),
        "until": rfc3339_or_none(pin.until),
    }


def pin_view(view: PinView) -> dict[str, object]:
    return {
        "kind": view.kind,
        "holder": view.holder,
        "key": str(view.generation.key),
        "generation": view.generation.digest,
        "current": view.current,
        "bytes": view.bytes,
        "since": rfc3339(view.since),
        "until": rfc3339_or_none(view.until),
        "ttl": view.ttl,
        "forever": view.forever,
        "uid": view.uid,
        "pid": view.pid,
        "process": view.process,
    }


def fetch_words(view: FetchView) -> dict[str, object]:
    return {
        "id": view.id,
        "key": str(view.key),
        "state": view.state,
        "source": view.source,
        "sources": view.sources,
        "revision": view.revision,
        "bytes_done": view.bytes_done,
        "bytes_total": view.bytes_total,
        "bytes_reused": view.bytes_reused,
        "rate": view.rate,
        "eta": view.eta,
        "callers": view.callers,
        "attempts": view.attempts,
        "created_at": rfc3339(view.created_at),
        "started_at": rfc3339_or_none(view.started_at),
        "ended_at": rfc3339_or_none(view.ended_at),
        "retry_at": rfc3339_or_none(view.retry_at),
        "problem": None if view.error is None else document(view.error),
        "record": None if view.record is None else listed_record(view.record),
    }


def verify_words(view: VerifyView) -> dict[str, object]:
    return {
        "key": str(view.generation.key),
        "generation": view.generation.digest,
        "state": view.state,
        "bytes_done": view.bytes_done,
        "bytes_total": view.bytes_total,
        "file": view.file,
        "rate": view.rate,
        "eta": view.eta,
        "damaged": [
            {
                "path": flaw.path,
                "problem": flaw.problem,
                "reason": flaw.reason,
                "expected": flaw.expected,
                "actual": flaw.actual,
            }
            for flaw in view.flaws
        ],
        "shared": [str(key) for key in view.shared],
        "kept": view.kept,
        "problem": None if view.error is None else document(view.error),
    }


def warm_words(view: WarmView) -> dict[str, object]:
    return {
        "key": str(view.key),
        "state": view.state,
        "bytes_done": view.bytes_done,
        "bytes_total": view.bytes_total,
        "rate": view.rate,
        "eta": view.eta,
        "cached": view.cached,
        "problem": None if view.error is None else document(view.error),
    }


def verdict_words(verdict: Verdict) -> dict[str, object]:
    return {
        "verdict": verdict.verdict,
        "bytes": verdict.bytes,
        "capacity": verdict.capacity,
        "free": verdict.free,
        "evictable": verdict.evictable,
        "pinned": verdict.pinned,
        "arriving": verdict.arriving,
        "filesystem_free": verdict.filesystem_free,
        "min_free": verdict.min_free,
        "victims": [
            {
                "key": str(victim.key),
                "generation": victim.digest,
                "bytes": victim.bytes,
                "last_used_at": rfc3339(victim.last_used_at),
            }
            for victim in verdict.victims
        ],
        "holders": [holder_figures(one) for one in verdict.holders],
        "reason": verdict.reason,
        "probed": verdict.probed,
    }


def eviction_words(eviction: Eviction) -> dict[str, object]:
    return {
        "sequence": eviction.sequence,
        "key": str(eviction.key),
        "generation": eviction.digest,
        "bytes": eviction.bytes,
        "reason": eviction.reason,
        "at": rfc3339(eviction.at),
        "idle_seconds": eviction.idle,
        "beneficiary": None if eviction.beneficiary is None else str(eviction.beneficiary),
    }


def event_line(event: Event | None) -> bytes:
    """One line of the stream; None is the heartbeat."""
    if event is None:
        return b'{"type":"heartbeat"}\n'
    words = {"seq": event.seq, "type": event.type, "at": rfc3339(event.at)}
    more = {name: _event_words(value) for name, value in event.data.items()}
    return to_json(words | more | words) + b"\n"


def _event_words(value: object) -> object:
    if isinstance(value, FetchView):
        return fetch_words(value)
    if isinstance(value, WarmView):
        return warm_words(value)
    return verify_words(value) if isinstance(value, VerifyView) else value


def status_words(snapshot: Snapshot) -> dict[str, object]:
    """Every figure of a snapshot, flat, under the metrics' names without their prefix."""
    filesystem = snapshot.filesystem
    return {
        "state": snapshot.state,
        "version": __version__,
        "root": str(snapshot.root),
        "started_at": rfc3339(snapshot.started_at),
        "capacity_bytes": snapshot.capacity_bytes,
        "used_bytes": snapshot.used_bytes,
        "resident_bytes": snapshot.resident_bytes,
        "retired_bytes": snapshot.retired_bytes,
        "reserved_bytes": snapshot.reserved_bytes,
        "written_bytes": snapshot.written_bytes,
        "doomed_bytes": snapshot.doomed_bytes,
        "pinned_bytes": snapshot.pinned_bytes,
        "evictable_bytes": snapshot.evictable_bytes,
        "free_bytes": snapshot.free_bytes,
        "over_budget_bytes": snapshot.over_budget_bytes,
        "overhead_bytes": snapshot.overhead_bytes,
        "filesystem_total_bytes": filesystem.total,
        "filesystem_free_bytes": filesystem.free,
        "min_free_bytes": filesystem.min_free,
        "others_bytes": filesystem.others,
        "models": snapshot.models,
        "retired_models": snapshot.retired_models,
        "arrivals": snapshot.arrivals,
        "waiting": snapshot.waiting,
        "partials": snapshot.partials,
        "parked_bytes": snapshot.parked_bytes,
        "fetches_in_flight": snapshot.fetches_in_flight,
        "pins": snapshot.pins,
        "holds": snapshot.holds,
        "uses": snapshot.uses,
        "oldest_pin_since": rfc3339_or_none(snapshot.oldest_pin_since),
        "pins_known": snapshot.pins_known,
        "evictions": sum(snapshot.evictions.values()),
        "evicted_bytes": sum(snapshot.evicted_bytes.values()),
        "hits": snapshot.lookups["hit"],
        "misses": snapshot.lookups["miss"],
        "hit_ratio": snapshot.hit_ratio,
        "damaged_models": snapshot.damaged_models,
        "expired_pins": snapshot.expired_pins,
        "in_use_detection": {"leases": snapshot.leases_work, "holds": True},
        "foreign": snapshot.foreign,
    }
