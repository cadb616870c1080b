"""From an error to its answer: the one table of statuses, and the problem documents (RFC 9457)."""

from __future__ import annotations

from typing import Final, NamedTuple

from pydantic_core import to_json
from starlette.responses import Response

from weightd import errors
from weightd.api import faults
from weightd.errors import HolderFigures, InvalidRequest, WeightdError
from weightd.wire import problems as wire
from weightd.wire.times import rfc3339_or_none

AS_PASSWORD: Final = 'Basic realm="weightd", charset="UTF-8"'
"""What a browser is told that asks for a page: it then asks its user for a name and the token."""


class Kind(NamedTuple):
    """How one class of error is answered."""

    status: int
    shape: type[wire.Problem]


TABLE: Final[dict[type[WeightdError], Kind]] = {
    errors.InvalidKey: Kind(400, wire.InvalidKeyProblem),
    errors.InvalidRequest: Kind(400, wire.InvalidRequestProblem),
    errors.InvalidArchive: Kind(400, wire.InvalidArchiveProblem),
    errors.IncompleteBody: Kind(400, wire.InvalidRequestProblem),
    errors.Unauthorized: Kind(401, wire.UnauthorizedProblem),
    errors.Forbidden: Kind(403, wire.ForbiddenProblem),
    faults.UnknownRoute: Kind(404, wire.NotFoundProblem),
    errors.NotResident: Kind(404, wire.NotResidentProblem),
    errors.NotPinned: Kind(404, wire.NotPinnedProblem),
    errors.GenerationGone: Kind(404, wire.GenerationGoneProblem),
    errors.UnknownFile: Kind(404, wire.UnknownFileProblem),
    errors.UnknownFetch: Kind(404, wire.UnknownFetchProblem),
    errors.UnknownUpload: Kind(404, wire.UnknownUploadProblem),
    faults.WrongMethod: Kind(405, wire.MethodNotAllowedProblem),
    errors.Stalled: Kind(408, wire.StalledProblem),
    errors.Pinned: Kind(409, wire.PinnedProblem),
    errors.InUse: Kind(409, wire.InUseProblem),
    errors.Busy: Kind(409, wire.BusyProblem),
    errors.FetchCancelled: Kind(409, wire.FetchCancelledProblem),
    errors.Exists: Kind(412, wire.ExistsProblem),
    faults.PreconditionFailed: Kind(412, wire.PreconditionFailedProblem),
    errors.TooLarge: Kind(413, wire.TooLargeProblem),
    faults.UnsupportedMediaType: Kind(415, wire.UnsupportedMediaTypeProblem),
    faults.RangeNotSatisfiable: Kind(416, wire.RangeProblem),
    errors.DigestMismatch: Kind(422, wire.DigestMismatchProblem),
    errors.TooMany: Kind(429, wire.TooManyProblem),
    faults.Internal: Kind(500, wire.InternalProblem),
    errors.IoError: Kind(500, wire.IoErrorProblem),
    errors.OriginFailed: Kind(502, wire.OriginFailedProblem),
    errors.OriginChanged: Kind(502, wire.OriginChangedProblem),
    errors.Blocked: Kind(503, wire.BlockedProblem),
    errors.StateUnwritable: Kind(503, wire.StateUnwritableProblem),
    errors.Starting: Kind(503, wire.StartingProblem),
    errors.Draining: Kind(503, wire.DrainingProblem),
    faults.Unhealthy: Kind(503, wire.UnhealthyProblem),
    errors.OriginTimeout: Kind(504, wire.OriginTimeoutProblem),
    errors.DiskFull: Kind(507, wire.DiskFullProblem),
}


def kind_of(error: type[WeightdError]) -> Kind:
    """The table's line for a class of error, or for the class it refines."""
    for base in error.__mro__:
        if base in TABLE:
            return TABLE[base]
    return TABLE[faults.Internal]


def document(error: WeightdError) -> dict[str, object]:
    """The problem document of an error: the members every problem has, then the figures."""
    kind = kind_of(type(error))
    return {
        "type": wire.TYPE_PREFIX + error.code,
        "title": kind.shape.title_text,
        "status": kind.status,
        "detail": error.detail,
        "code": error.code,
        "retryable": error.retryable,
        **_figures(error),
    }


def problem(error: WeightdError) -> Response:
    """The answer to an error."""
    headers = {"Cache-Control": "no-store"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    match error:
        case faults.WrongMethod(allowed=allowed):
            headers["Allow"] = ", ".join(allowed)
        case faults.RangeNotSatisfiable(bytes=length):
            headers["Content-Range"] = f"bytes */{length}"
        case faults.UnsupportedMediaType(header="Content-Encoding"):
            headers["Accept-Encoding"] = "identity"
        case errors.Unauthorized():
            headers["WWW-Authenticate"] = 'Bearer realm="weightd"'
        case _:
            pass
    answer = Response(
        to_json(document(error)) + b"\n",
        status_code=kind_of(type(error)).status,
        headers=headers,
        media_type=wire.MEDIA_TYPE,
    )
    if isinstance(error, faults.AskForPassword):
        # In a line of its own, or Chromium reads no further than to the first.
        answer.headers.append("WWW-Authenticate", AS_PASSWORD)
    return answer


def holder_figures(figures: HolderFigures) -> dict[str, object]:
    """One holder as an answer names it."""
    return {
        "holder": figures.holder,
        "key": figures.key,
        "bytes": figures.bytes,
        "since": rfc3339_or_none(figures.since),
        "until": rfc3339_or_none(figures.until),
    }


def _figures(error: WeightdError) -> dict[str, object]:
    figures = error.figures()
    match error:
        case InvalidRequest():
            found = error.faults if isinstance(error, faults.InvalidRequests) else (error,)
            figures["faults"] = [{"what": one.what, "reason": one.reason} for one in found]
        case errors.Pinned(holders=holders) | errors.Blocked(holders=holders):
            figures["holders"] = [holder_figures(one) for one in holders]
        case _:
            pass
    return {name: _printable(value) for name, value in figures.items()}


def _printable(value: object) -> object:
    """What came in as undecodable bytes goes out escaped: an answer is always valid UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
