"""Uploads: a writer on this node fills a directory himself, then has it published."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import desk_of
from weightd.api.faults import UnsupportedMediaType
from weightd.api.hangup import while_there
from weightd.api.protocol import CONNECTION
from weightd.api.reading import path_text, read_json, read_query
from weightd.api.routing import ADMIN, PATH_ALONE, Answer, Route
from weightd.api.words import json_answer, record_answer, upload_words
from weightd.cache import Announced, Owner
from weightd.model import Key
from weightd.wire import answers as wire
from weightd.wire.requests import NoQuery, UploadQuery, UploadRequest

ANNOUNCEMENT_BYTES_MAX: Final = 8 << 20
"""Ten thousand files with long names and their hashes."""

_ID_SHOWN: Final = 80


async def post_upload(request: Request) -> Response:
    query = read_query(request, UploadQuery)
    desk = desk_of(request)
    asked = await read_json(
        request, UploadRequest, desk.limits.idle_timeout, most=ANNOUNCEMENT_BYTES_MAX
    )
    files = [Announced(file.path, file.bytes, file.sha256) for file in asked.files]
    begun = desk.cache.uploads.begin(
        Key.parse(asked.key), files, owner_of(request), wait=query.wait, trusted=asked.trusted
    )
    view = await while_there(request, begun)
    return json_answer(upload_words(view), 201, {"Location": f"/v1/uploads/{view.id}"})


async def list_uploads(request: Request) -> Response:
    read_query(request, NoQuery)
    views = desk_of(request).cache.uploads.views()
    return json_answer({"uploads": [upload_words(view) for view in views]})


async def commit_upload(request: Request) -> Response:
    read_query(request, NoQuery)
    outcome = await desk_of(request).cache.uploads.commit(_id(request))
    return record_answer(request, outcome.record, 201 if outcome.created else 200)


async def delete_upload(request: Request) -> Response:
    read_query(request, NoQuery)
    await desk_of(request).cache.uploads.cancel(_id(request))
    return Response(status_code=204)


def owner_of(request: Request) -> Owner:
    """The user that the kernel saw connect, who is to fill the directory."""
    owner = request.scope["extensions"][CONNECTION]["owner"]
    if owner is None:
        reason = "only a writer on this node can write files here"
        raise errors.Forbidden(reason=reason, door=request.app.state.admin)
    return Owner(*owner)


def _id(request: Request) -> str:
    return path_text(request, "upload")[:_ID_SHOWN]


ROUTES: Final = (
    Route(
        "POST",
        "/v1/uploads",
        post_upload,
        ADMIN,
        "Promise room for files that a writer on this node writes himself",
        {201: Answer("The directory to write them in.", wire.UploadShape, headers=("Location",))},
        (
            errors.InvalidKey,
            errors.Forbidden,
            errors.Stalled,
            UnsupportedMediaType,
            errors.TooLarge,
            errors.TooMany,
            errors.IoError,
            errors.Blocked,
            errors.Draining,
            errors.DiskFull,
        ),
        description=(
            "The directory is open to the user who asked, as the kernel saw him connect, and to "
            "nobody else. He writes just what he announced, by any tool, and commits. Where "
            "weightd is not root it has made the files ahead: what is written into them need not "
            "be copied. More than what was announced ends the upload, and so do ten minutes "
            "without a first byte, an hour in which nothing grows, and the end of the daemon."
        ),
        query=UploadQuery,
        body=UploadRequest,
        on_node=True,
    ),
    Route(
        "GET",
        "/v1/uploads",
        list_uploads,
        ADMIN,
        "List the uploads under way",
        {200: Answer("All of them, the oldest first.", wire.UploadList)},
    ),
    Route(
        "POST",
        "/v1/uploads/{upload}/commit",
        commit_upload,
        ADMIN,
        "Verify what was written, take it over and publish it",
        {
            201: Answer("Published.", wire.ModelRecord, PATH_ALONE),
            200: Answer("The same content is here already.", wire.ModelRecord, PATH_ALONE),
        },
        (
            errors.UnknownUpload,
            errors.TooLarge,
            errors.Pinned,
            errors.InUse,
            errors.DigestMismatch,
            errors.IoError,
            errors.Blocked,
            errors.Draining,
            errors.DiskFull,
        ),
        description=(
            "Refused while somebody still has a file open for writing, and for files that are "
            "missing, of another length or content, not announced or not to be read; blocked "
            "where files that were put in the place of weightd's own have to be copied and there "
            "is no room. All is then as it was, and he may go on and commit again."
        ),
    ),
    Route(
        "DELETE",
        "/v1/uploads/{upload}",
        delete_upload,
        ADMIN,
        "Give an upload up",
        {204: Answer("It is gone.")},
        (errors.UnknownUpload, errors.IoError),
    ),
)
