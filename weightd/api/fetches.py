"""Fetches: ask for a model from its origin, follow the job, end it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import desk_of
from weightd.api.eventstream import EventStream
from weightd.api.faults import UnsupportedMediaType
from weightd.api.hangup import while_there
from weightd.api.pins import admin_named, peer_uid
from weightd.api.reading import path_text, prefers_text, read_json, read_query
from weightd.api.routing import ADMIN, PATH_ALONE, REPLICA, Answer, Route
from weightd.api.words import fetch_words, json_answer, record_answer
from weightd.cache.fetching.terms import FetchTerms, FetchView
from weightd.errors import InvalidRequest
from weightd.model import Key
from weightd.wire import answers as wire
from weightd.wire.requests import FetchQuery, FetchRequest, NoQuery

_ID_SHOWN: Final = 80


async def post_fetch(request: Request) -> Response:
    query = read_query(request, FetchQuery)
    desk = desk_of(request)
    asked = await read_json(request, FetchRequest, desk.limits.idle_timeout)
    key = Key.parse(asked.key)
    terms = fetch_terms(asked, query.wait, peer_uid(request))
    with admin_named(request):
        outcome = await while_there(request, desk.cache.fetch(key, terms))
    if outcome.record is not None:
        return record_answer(request, outcome.record)
    assert outcome.job is not None, "what is not here has a job"
    return _accepted(request, outcome.job)


async def list_fetches(request: Request) -> Response:
    read_query(request, NoQuery)
    views = desk_of(request).cache.fetching.views()
    return json_answer({"fetches": [fetch_words(view) for view in views]})


async def get_fetch(request: Request) -> Response:
    read_query(request, NoQuery)
    return json_answer(fetch_words(desk_of(request).cache.fetching.view(_id(request))))


async def delete_fetch(request: Request) -> Response:
    read_query(request, NoQuery)
    await desk_of(request).cache.fetching.cancel(_id(request))
    return Response(status_code=204)


async def stream_fetch(request: Request) -> Response:
    read_query(request, NoQuery)
    desk = desk_of(request)
    return EventStream(desk.cache.fetching.events(_id(request)), desk.limits.idle_timeout)


def fetch_terms(asked: FetchRequest, wait: float, uid: int | None) -> FetchTerms:
    """What a caller wants, in the cache's words.  Raises InvalidRequest."""
    if asked.ttl is not None and asked.holder is None:
        raise InvalidRequest("ttl", "it is for a holder's pin, and no holder is named")
    return FetchTerms(
        sources=asked.source,
        digest=asked.digest,
        holder=asked.holder,
        ttl=asked.ttl if isinstance(asked.ttl, float) else None,
        forever=asked.ttl == "forever",
        revalidate=asked.revalidate,
        credential=asked.credential,
        wait=wait,
        uid=uid,
    )


def _id(request: Request) -> str:
    return path_text(request, "fetch")[:_ID_SHOWN]


def _accepted(request: Request, job: FetchView) -> Response:
    """The job; to a shell that wants a path nothing, so that it takes nothing for one."""
    headers = {"Location": f"/v1/fetches/{job.id}", "Vary": "Accept"}
    if prefers_text(request):
        headers["Cache-Control"] = "no-store"
        return Response(status_code=202, headers=headers, media_type="text/plain")
    return json_answer(fetch_words(job), 202, headers)


ROUTES: Final = (
    Route(
        "POST",
        "/v1/fetch",
        post_fetch,
        REPLICA,
        "Have a model here: at once when it is, else from its origin",
        {
            200: Answer("It is here, pinned for the holder.", wire.ModelRecord, PATH_ALONE),
            202: Answer(
                "It is on its way; as text, nothing.", wire.FetchShape, PATH_ALONE, ("Location",)
            ),
        },
        (
            errors.InvalidKey,
            errors.Stalled,
            UnsupportedMediaType,
            errors.Busy,
            errors.FetchCancelled,
            errors.TooLarge,
            errors.DigestMismatch,
            errors.TooMany,
            errors.IoError,
            errors.OriginFailed,
            errors.OriginChanged,
            errors.OriginTimeout,
            errors.Blocked,
            errors.StateUnwritable,
            errors.Draining,
            errors.DiskFull,
        ),
        description=(
            "A lookup, counted once. There is one fetch per key: whoever asks for the same key "
            "and source joins it, and it goes on when they leave. Whether it fits is decided "
            "before a byte is asked for and before anything is evicted. Without `wait` the answer "
            "comes as soon as it was admitted, failed, or has been listing for two seconds. At "
            "the replica socket only sources that `allow_origins` lists are taken."
        ),
        query=FetchQuery,
        body=FetchRequest,
    ),
    Route(
        "GET",
        "/v1/fetches",
        list_fetches,
        REPLICA,
        "List the fetches under way and those that ended within the hour",
        {200: Answer("All of them, the newest first.", wire.FetchList)},
    ),
    Route(
        "GET",
        "/v1/fetches/{fetch}",
        get_fetch,
        REPLICA,
        "One fetch: how far it is, or how it ended",
        {200: Answer("As it stands.", wire.FetchShape)},
        (errors.UnknownFetch,),
    ),
    Route(
        "DELETE",
        "/v1/fetches/{fetch}",
        delete_fetch,
        ADMIN,
        "End a fetch and give up what it brought; forget one that has ended",
        {204: Answer("It is over.")},
        (errors.UnknownFetch, errors.IoError),
    ),
    Route(
        "GET",
        "/v1/fetches/{fetch}/events",
        stream_fetch,
        REPLICA,
        "Follow a fetch: a JSON object a line",
        {200: Answer("How far it is, until it ends.", line=wire.FetchEventShape)},
        (errors.UnknownFetch,),
        description=(
            'Each line has `seq`, `type`, `at` and `job`; `{"type": "heartbeat"}` comes when '
            "nothing happens. The last has the type `end` and the `outcome`: `done`, `failed`, "
            "`cancelled`, or `draining` when the daemon stops before."
        ),
    ),
)
