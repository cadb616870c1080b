"""Pins: take, renew, let go, list, and accept that they were lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import desk_of
from weightd.api.protocol import CONNECTION
from weightd.api.reading import holder_in_path, key_in_path, read_query, settle
from weightd.api.routing import ADMIN, PATH_ALONE, REPLICA, Answer, Route
from weightd.api.words import in_parts, json_answer, pin_view, pin_words, record_answer
from weightd.wire import answers as wire
from weightd.wire.requests import NoQuery, PinQuery
from weightd.wire.times import rfc3339_or_none


async def put_pin(request: Request) -> Response:
    key = key_in_path(request)
    holder, query = settle(lambda: holder_in_path(request), lambda: read_query(request, PinQuery))
    forever = query.ttl == "forever"
    with admin_named(request):
        outcome = await desk_of(request).cache.pin(
            holder,
            key,
            ttl=query.ttl if isinstance(query.ttl, float) else None,
            forever=forever,
            generation=query.generation,
            uid=peer_uid(request),
        )
    status = 201 if outcome.created else 200
    return record_answer(request, outcome.record, status, more=pin_words(outcome))


async def delete_pin(request: Request) -> Response:
    key = key_in_path(request)
    holder, _ = settle(lambda: holder_in_path(request), lambda: read_query(request, NoQuery))
    with admin_named(request):
        await desk_of(request).cache.unpin(holder, key, peer_uid(request))
    return Response(status_code=204)


def peer_uid(request: Request) -> int | None:
    """The user that the kernel saw connect to the replica door; None at the admin's."""
    connection = request.scope["extensions"][CONNECTION]
    return connection["owner"][0] if connection["replica"] else None


@contextmanager
def admin_named(request: Request) -> Iterator[None]:
    """What only this door refuses is refused with the place of the admin socket."""
    try:
        yield
    except errors.Forbidden as error:
        if error.door == errors.ADMIN_SOCKET:
            error.door = request.app.state.admin
        raise


async def list_pins(request: Request) -> Response:
    read_query(request, NoQuery)
    cache = desk_of(request).cache
    views, swept_at = cache.pins(), rfc3339_or_none(cache.swept_at)
    words = await in_parts(views, pin_view)
    return json_answer({"pins": words, "swept_at": swept_at})


async def accept_loss(request: Request) -> Response:
    read_query(request, NoQuery)
    await desk_of(request).cache.accept_loss()
    return Response(status_code=204)


ROUTES: Final = (
    Route(
        "PUT",
        "/v1/pins/{holder}/{key}",
        put_pin,
        REPLICA,
        "Pin the current generation, or renew the pin this holder has",
        {
            201: Answer("Pinned, on stable storage.", wire.PinnedRecord, PATH_ALONE),
            200: Answer("Renewed.", wire.PinnedRecord, PATH_ALONE),
        },
        (
            errors.NotResident,
            errors.GenerationGone,
            errors.IoError,
            errors.StateUnwritable,
            errors.TooMany,
            errors.Draining,
        ),
        description=(
            "Idempotent. A pinned generation is never evicted, deleted or changed. The count of "
            "pins is the number of holders. A holder's first pin of a key counts as a lookup. "
            "At the replica socket a pin is that of the user who took it, who may have so many and "
            "touch no other's."
        ),
        query=PinQuery,
    ),
    Route(
        "DELETE",
        "/v1/pins/{holder}/{key}",
        delete_pin,
        REPLICA,
        "Let a pin go",
        {204: Answer("It is gone.")},
        (errors.NotPinned, errors.StateUnwritable),
    ),
    Route(
        "POST",
        "/v1/pins/accept-loss",
        accept_loss,
        ADMIN,
        "After the record of pins was lost: evict again",
        {204: Answer("Accepted.")},
        (errors.StateUnwritable,),
    ),
    Route(
        "GET",
        "/v1/pins",
        list_pins,
        ADMIN,
        "List every pin, hold and use that is seen",
        {200: Answer("All of them.", wire.PinList)},
    ),
)
