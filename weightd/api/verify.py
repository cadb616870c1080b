"""Verification: a model read to the last byte, for as long as its caller stays."""

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
from weightd.wire import answers as wire
from weightd.wire.requests import NoQuery


async def post_verify(request: Request) -> Response:
    key = key_in_path(request)
    read_query(request, NoQuery)
    desk = desk_of(request)
    lines = await while_there(request, desk.cache.verifications.begin(key))
    return EventStream(lines, desk.limits.idle_timeout)


ROUTES: Final = (
    Route(
        "POST",
        "/v1/verify/{key}",
        post_verify,
        ADMIN,
        "Read a model to the last byte and compare it with what was published",
        {200: Answer("How far it is, and what was found.", line=wire.VerifyEventShape)},
        (errors.NotResident, errors.TooMany, errors.IoError, errors.Draining),
        description=(
            "Reads the current generation from the disk at idle priority, one model at a time, "
            'and ends when its caller goes. Lines are `progress`, `{"type": "heartbeat"}` when '
            "nothing happens, and at last `end` with the `outcome`: `whole`; `damaged`, and then "
            "the model is answered no more and goes when nothing keeps it, as does any other that "
            "shares a damaged file with it; `gone` when it was evicted or replaced meanwhile, "
            "which a verification never prevents; `failed` with a `problem`; `draining` when the "
            "daemon stops before. Counts no lookup."
        ),
    ),
)
