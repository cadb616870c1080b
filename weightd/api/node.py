"""The node: its status, what would be admitted, what was evicted, what happens, its health."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import Desk, desk_of
from weightd.api.eventstream import EventStream
from weightd.api.faults import Unhealthy, UnsupportedMediaType
from weightd.api.metrics import SnapshotCollector, render
from weightd.api.reading import key_given, read_json, read_query
from weightd.api.routing import ADMIN, LOCAL, PROBES, Answer, Route
from weightd.api.words import eviction_words, json_answer, status_words, verdict_words
from weightd.cache.records import Snapshot
from weightd.wire import answers as wire
from weightd.wire.requests import AdmissionRequest, EventsQuery, EvictionsQuery, NoQuery


async def get_status(request: Request) -> Response:
    read_query(request, NoQuery)
    return json_answer(status_words(await probe(desk_of(request))))


async def post_admission(request: Request) -> Response:
    read_query(request, NoQuery)
    desk = desk_of(request)
    asked = await read_json(request, AdmissionRequest, desk.limits.idle_timeout)
    verdict = await desk.cache.admission(asked.bytes, key_given(asked.key))
    return json_answer(verdict_words(verdict))


async def list_evictions(request: Request) -> Response:
    query = read_query(request, EvictionsQuery)
    found, following = await desk_of(request).cache.evictions(query.limit, query.after)
    return json_answer({"evictions": [eviction_words(one) for one in found], "next": following})


async def stream_events(request: Request) -> Response:
    query = read_query(request, EventsQuery)
    desk = desk_of(request)
    return EventStream(desk.cache.events(query.after), desk.limits.idle_timeout)


async def get_health(request: Request) -> Response:
    read_query(request, NoQuery)
    desk = desk_of(request)
    snapshot = await probe(desk)
    if desk.trouble is not None:
        raise Unhealthy(desk.limits.probe_timeout, desk.trouble)
    return json_answer({"status": "ok", "state": snapshot.state})


async def get_readiness(request: Request) -> Response:
    read_query(request, NoQuery)
    state = desk_of(request).state
    if state == "starting":
        raise errors.Starting
    if state == "draining":
        raise errors.Draining
    return json_answer({"status": "ok", "state": state})


async def get_metrics(request: Request) -> Response:
    read_query(request, NoQuery)
    desk = desk_of(request)
    snapshot = await probe(desk)
    collector = SnapshotCollector(snapshot, desk.times, time.time())
    text, content_type = render(collector, request.headers.get("accept", ""))
    return Response(text, headers={"Cache-Control": "no-store", "Content-Type": content_type})


async def probe(desk: Desk) -> Snapshot:
    """Every figure, which shows that the cache lives: its loop, its threads and its filesystem.

    Raises Unhealthy, or the error that the cache met.
    """
    try:
        async with asyncio.timeout(desk.limits.probe_timeout):
            return await desk.snapshot()
    except TimeoutError:
        raise Unhealthy(desk.limits.probe_timeout) from None


_EXPOSITION: Final = {
    "text/plain": {"type": "string"},
    "application/openmetrics-text": {"type": "string"},
}

ROUTES: Final = (
    Route(
        "GET",
        "/v1/status",
        get_status,
        LOCAL,
        "The budget and its parts, counts, and what the kernel can tell",
        {200: Answer("Every figure, taken at one instant.", wire.StatusShape)},
        (errors.IoError, Unhealthy),
    ),
    Route(
        "POST",
        "/v1/admission",
        post_admission,
        ADMIN,
        "Ask what would become of an arrival, without doing it",
        {200: Answer("The verdict, and what was probed for it.", wire.AdmissionVerdict)},
        (errors.InvalidKey, errors.Stalled, UnsupportedMediaType, errors.IoError),
        body=AdmissionRequest,
    ),
    Route(
        "GET",
        "/v1/evictions",
        list_evictions,
        ADMIN,
        "The journal: what went, when, why, for whom, and how long it had been idle",
        {200: Answer("One page, in order of sequence.", wire.EvictionList)},
        (errors.IoError,),
        query=EvictionsQuery,
    ),
    Route(
        "GET",
        "/v1/events",
        stream_events,
        ADMIN,
        "What happens, as it happens: a JSON object a line",
        {200: Answer("One line each.", line=wire.EventShape)},
        description=(
            'Each line has `seq`, `type` and `at`; `{"type": "heartbeat"}` comes when nothing '
            "happens, `lost` when the reader was too slow, `end` when the daemon stops."
        ),
        query=EventsQuery,
    ),
    Route(
        "GET",
        "/healthz",
        get_health,
        PROBES,
        "Whether the daemon lives: its loop, its threads and its disk, which took a write lately",
        {200: Answer("It does.", wire.HealthShape)},
        (errors.IoError, Unhealthy),
    ),
    Route(
        "GET",
        "/readyz",
        get_readiness,
        PROBES,
        "Whether the daemon takes requests",
        {200: Answer("It does.", wire.HealthShape)},
        (errors.Starting, errors.Draining),
    ),
    Route(
        "GET",
        "/metrics",
        get_metrics,
        PROBES,
        "The metrics, for Prometheus",
        {200: Answer("In the format that `Accept` asks for.", media=_EXPOSITION)},
        (errors.IoError, Unhealthy),
    ),
)
