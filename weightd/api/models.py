"""Models: list, look up, peek, put, delete, and the bytes of their files."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.bodies import RequestBody
from weightd.api.content import ContentResponse, select
from weightd.api.desk import desk_of
from weightd.api.faults import PreconditionFailed, RangeNotSatisfiable, UnsupportedMediaType
from weightd.api.hangup import lender_of, unless_gone
from weightd.api.reading import (
    body_length,
    create_conditions,
    key_given,
    key_in_path,
    only_header,
    read_query,
    refuse_encoded,
)
from weightd.api.routing import ADMIN, LOCAL, PATH_ALONE, REPLICA, Answer, Header, Route
from weightd.api.words import in_parts, json_answer, listed_record, record_answer
from weightd.cache.records import PutTerms
from weightd.errors import InvalidRequest
from weightd.model import Key
from weightd.wire import answers as wire
from weightd.wire.requests import ContentQuery, ModelsQuery, NoQuery, PutQuery

TAR: Final = "application/x-tar"

_BYTES: Final = {"type": "string", "format": "binary"}


async def list_models(request: Request) -> Response:
    query = read_query(request, ModelsQuery)
    records, following = desk_of(request).cache.page(key_given(query.after), query.limit)
    words = await in_parts(records, listed_record)
    return json_answer({"models": words, "next": None if following is None else str(following)})


async def get_model(request: Request) -> Response:
    key = key_in_path(request)
    read_query(request, NoQuery)
    return record_answer(request, await desk_of(request).cache.get(key))


async def peek_model(request: Request) -> Response:
    key = key_in_path(request)
    read_query(request, NoQuery)
    return record_answer(request, await desk_of(request).cache.peek(key))


async def put_model(request: Request) -> Response:
    key = key_in_path(request)
    terms = put_terms(request)
    desk = desk_of(request)
    body = RequestBody(
        request.receive,
        lender_of(request),
        length=terms.length,
        idle_timeout=desk.limits.idle_timeout,
    )
    with desk.place_for_put():
        outcome = await unless_gone(request, body, desk.cache.put(key, body, terms))
    if not outcome.created:
        return record_answer(request, outcome.record)
    return record_answer(request, outcome.record, 201, headers={"Location": model_url(key)})


async def delete_model(request: Request) -> Response:
    key = key_in_path(request)
    read_query(request, NoQuery)
    await desk_of(request).cache.delete(key)
    return Response(status_code=204)


async def get_content(request: Request) -> Response:
    key = key_in_path(request)
    query = read_query(request, ContentQuery)
    desk = desk_of(request)
    file = query.file or await _only_file(request, key)
    async with AsyncExitStack() as stack:
        contents = await stack.enter_async_context(desk.cache.content(key, file))
        entry = contents.entry
        part = select(request.method, request.headers, entry.sha256, entry.bytes)
        # From here on the response owns the open file.
        return ContentResponse(contents, part, stack.pop_all(), desk.limits.idle_timeout)


def put_terms(request: Request) -> PutTerms:
    """What a put declares.  Raises InvalidRequest and UnsupportedMediaType."""
    query = read_query(request, PutQuery)
    refuse_encoded(request)
    create_only, unless_digest = create_conditions(request)
    length = body_length(request)
    archive = (only_header(request, "Content-Type") or "").partition(";")[0].strip().lower() == TAR
    if archive:
        for name in ("file", "sha256"):
            if getattr(query, name) is not None:
                raise InvalidRequest(name, "it is for a single file, and the body is an archive")
    if query.bytes is not None and length is not None and length > query.bytes:
        raise InvalidRequest(
            "bytes", f"the body's length, {length}, is more than the {query.bytes} declared"
        )
    return PutTerms(
        length=length,
        most=query.bytes,
        archive=archive,
        file=query.file,
        sha256=query.sha256,
        create_only=create_only,
        unless_digest=unless_digest,
        wait=query.wait,
    )


def model_url(key: Key) -> str:
    return "/v1/models/" + quote(str(key), safe="/@")


async def _only_file(request: Request, key: Key) -> str:
    """The model's one file, when the request names none.  Raises InvalidRequest for several."""
    record = await desk_of(request).cache.peek(key)
    files = record.manifest.files
    if len(files) > 1:
        raise InvalidRequest("file", f"{key} has {len(files)} files; say which one")
    return files[0].path


_RECORD: Final = Answer("The record.", wire.ModelRecord, PATH_ALONE)
_CONDITIONS: Final = (
    Header("If-None-Match", "Entity tags, any of which answers 304."),
    Header("If-Match", "Entity tags, none of which answers 412."),
)
_RANGE: Final = (
    Header(
        "Range",
        "One range of bytes.",
        {"pattern": "^bytes=([0-9]{1,9}-|-[0-9]{1,9})$", "examples": ["bytes=0-1023"]},
    ),
    Header("If-Range", "The entity tag that the range is meant for; for another, all is answered."),
)
_CONTENT_HEADERS: Final = ("ETag", "Accept-Ranges")
_CONTENT: Final = {
    200: Answer(
        "The whole file.", media={"application/octet-stream": _BYTES}, headers=_CONTENT_HEADERS
    ),
    206: Answer(
        "The range.",
        media={"application/octet-stream": _BYTES},
        headers=(*_CONTENT_HEADERS, "Content-Range"),
    ),
    304: Answer("The client has it.", headers=("ETag",)),
}
_CONTENT_ERRORS: Final = (
    errors.NotResident,
    errors.UnknownFile,
    PreconditionFailed,
    RangeNotSatisfiable,
    errors.IoError,
)

ROUTES: Final = (
    Route(
        "GET",
        "/v1/models/{key}",
        get_model,
        REPLICA,
        "Look a model up: counts as a hit or a miss, and as a use",
        {200: _RECORD},
        (errors.NotResident, errors.IoError),
        own_head=True,
    ),
    Route(
        "HEAD",
        "/v1/models/{key}",
        peek_model,
        REPLICA,
        "Ask whether a model is here: neither counts nor touches",
        {200: Answer("It is here.")},
        (errors.NotResident, errors.IoError),
    ),
    Route(
        "PUT",
        "/v1/models/{key}",
        put_model,
        ADMIN,
        "Put a model: one file, or a directory as a tar stream",
        {
            201: Answer("It is here now.", wire.ModelRecord, PATH_ALONE, ("Location",)),
            200: Answer("The same content was here already.", wire.ModelRecord, PATH_ALONE),
        },
        (
            errors.InvalidArchive,
            errors.Stalled,
            errors.Pinned,
            errors.InUse,
            errors.Exists,
            errors.TooLarge,
            UnsupportedMediaType,
            errors.DigestMismatch,
            errors.TooMany,
            errors.IoError,
            errors.Blocked,
            errors.Draining,
            errors.DiskFull,
        ),
        description=(
            "The model appears whole or not at all. A refusal precedes the first byte when the "
            "client sends `Expect: 100-continue`. A body of unknown length grows into free bytes "
            "only, unless `bytes` declares its most. `too-large` is permanent; `blocked` passes."
        ),
        query=PutQuery,
        body={"application/octet-stream": _BYTES, TAR: _BYTES},
        headers=(
            Header(
                "If-None-Match",
                "`*` creates only; a digest in quotes answers 200 before the body when that "
                "content is here.",
                {"pattern": '^(\\*|"[0-9a-f]{64}")$', "examples": ["*"]},
            ),
        ),
    ),
    Route(
        "DELETE",
        "/v1/models/{key}",
        delete_model,
        ADMIN,
        "Evict a model now",
        {204: Answer("It is gone.")},
        (errors.NotResident, errors.Pinned, errors.InUse, errors.IoError),
    ),
    Route(
        "GET",
        "/v1/models",
        list_models,
        LOCAL,
        "List models in order of their keys, without their files: touches nothing",
        {200: Answer("One page.", wire.ModelList)},
        (errors.InvalidKey,),
        query=ModelsQuery,
    ),
    Route(
        "GET",
        "/v1/content/{key}",
        get_content,
        REPLICA,
        "Read a file's bytes, or a range of them: counts no lookup",
        _CONTENT,
        _CONTENT_ERRORS,
        query=ContentQuery,
        headers=(*_RANGE, *_CONDITIONS),
        own_head=True,
    ),
    Route(
        "HEAD",
        "/v1/content/{key}",
        get_content,
        REPLICA,
        "Ask for a file's size and ETag",
        {200: _CONTENT[200], 304: _CONTENT[304]},
        _CONTENT_ERRORS,
        query=ContentQuery,
        headers=_CONDITIONS,
    ),
)
