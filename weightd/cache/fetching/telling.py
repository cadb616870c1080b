"""What is told of a fetch when it begins and when it ends."""

from __future__ import annotations

from typing import Final

from weightd.cache.events import EventLog
from weightd.cache.fetching.job import Job
from weightd.origins import parse_reference

_ENDS: Final = {"done": "fetched", "cancelled": "fetch-cancelled", "failed": "fetch-failed"}


def tell_begin(events: EventLog, job: Job) -> None:
    """That it runs."""
    events.tell("fetching", **_names(job))


def tell_end(events: EventLog, job: Job) -> None:
    """How it ended, and what it brought in how many seconds, at how many bytes a second."""
    took = max(0.0, (job.ended_at or 0.0) - (job.started_at or job.ended_at or 0.0))
    brought = max(0, job.bytes_done - job.bytes_reused)
    figures: dict[str, object] = {
        "bytes": job.bytes_done,
        "bytes_reused": job.bytes_reused,
        "seconds": round(took, 3),
        "rate": round(brought / took) if took > 0 else None,
    }
    if job.error is not None:
        figures |= {"reason": job.error.detail, "attempts": job.attempts}
    events.tell(_ENDS[job.state], **_names(job), **figures)


def _names(job: Job) -> dict[str, object]:
    return {
        "key": str(job.key),
        "job": job.id,
        "source": parse_reference(job.source).text,
        "code": None if job.error is None else job.error.code,
    }
