"""Adoption: files of a user on this node become a model where they are."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import desk_of
from weightd.api.faults import UnsupportedMediaType
from weightd.api.hangup import while_there
from weightd.api.reading import read_json, read_query
from weightd.api.routing import ADMIN, PATH_ALONE, Answer, Route
from weightd.api.uploads import ANNOUNCEMENT_BYTES_MAX, owner_of
from weightd.api.words import record_answer
from weightd.cache import Announced, Offered, Origination
from weightd.model import Key
from weightd.wire import answers as wire
from weightd.wire.requests import AdoptedFile, AdoptQuery, AdoptRequest


async def post_adopt(request: Request) -> Response:
    query = read_query(request, AdoptQuery)
    desk = desk_of(request)
    asked = await read_json(
        request, AdoptRequest, desk.limits.idle_timeout, most=ANNOUNCEMENT_BYTES_MAX
    )
    adopted = desk.cache.adoptions.adopt(
        Key.parse(asked.key),
        [_offered(file) for file in asked.files],
        owner_of(request).uid,
        origination=Origination(asked.source, asked.revision),
        wait=query.wait,
    )
    outcome = await while_there(request, adopted)
    return record_answer(request, outcome.record, 201 if outcome.created else 200)


def _offered(file: AdoptedFile) -> Offered:
    announced = Announced(file.path, file.bytes, file.sha256)
    return Offered(announced, file.place, keep=file.keep, copy=file.copy_, trusted=file.trusted)


ROUTES: Final = (
    Route(
        "POST",
        "/v1/adopt",
        post_adopt,
        ADMIN,
        "Make a model of files that are on the root's filesystem already, without copying them",
        {
            201: Answer("Adopted.", wire.ModelRecord, PATH_ALONE),
            200: Answer(
                "The same content is here already; every file is where it was.",
                wire.ModelRecord,
                PATH_ALONE,
            ),
        },
        (
            errors.InvalidKey,
            errors.Stalled,
            UnsupportedMediaType,
            errors.TooLarge,
            errors.TooMany,
            errors.Pinned,
            errors.InUse,
            errors.DigestMismatch,
            errors.IoError,
            errors.Blocked,
            errors.Draining,
            errors.DiskFull,
        ),
        description=(
            "The files, and the directories that they are renamed out of, have to belong to the "
            "user who asks, as the kernel saw him connect; root may adopt anybody's. A file that "
            "has several names, or is to be kept, stays, and its blocks are shared; where the "
            "filesystem cannot do that, the file is named and nothing has changed. Refused also "
            "while somebody has a file open for writing. Whatever fails, and whoever is killed "
            "meanwhile, every file is then either in the published model or back where it was."
        ),
        query=AdoptQuery,
        body=AdoptRequest,
        on_node=True,
    ),
)
