"""Warming: a model read into the page cache, for as long as its caller stays."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import desk_of
from weightd.api.eventstream import EventStream
from weightd.api.hangup import while_there
from weightd.api.reading import key_in_path, read_query
from weightd.api.routing import ADMIN, Answer, Route
from weightd.api.words import json_answer
from weightd.wire import answers as wire
from weightd.wire.requests import NoQuery

STREAM: Final = "application/x-ndjson"
"""In ``Accept`` it asks for how far it is, line by line."""


async def post_warm(request: Request) -> Response:
    key = key_in_path(request)
    read_query(request, NoQuery)
    desk = desk_of(request)
    if STREAM in request.headers.get("accept", ""):
        lines = await while_there(request, desk.cache.warmings.begin(key))
        return EventStream(lines, desk.limits.idle_timeout)
    warmed = await while_there(request, desk.cache.warmings.warm(key))
    return json_answer({"bytes": warmed.bytes, "cached": warmed.cached})


ROUTES: Final = (
    Route(
        "POST",
        "/v1/warm/{key}",
        post_warm,
        ADMIN,
        "Read a model into the page cache, and say how much of it is there",
        {200: Answer("When it has been read.", wire.WarmShape, line=wire.WarmEventShape)},
        (errors.NotResident, errors.TooMany, errors.IoError, errors.Draining),
        description=(
            "Reads the current generation as fast as the disk can, one model at a time, and ends "
            "when its caller goes. `cached` is less than `bytes` where memory did not suffice; in "
            "a container the pages are counted to weightd's own memory limit. It keeps the model "
            "from nothing: when it is evicted meanwhile that is `not-resident`. Counts no lookup. "
            "With `Accept: application/x-ndjson` it is told line by line as it goes: `progress`, "
            '`{"type": "heartbeat"}` when nothing happens, and at last `end` with the `outcome`: '
            "`warm`, `failed` with a `problem`, or `draining`."
        ),
    ),
)
