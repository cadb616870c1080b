"""From a request's text to checked values; whatever is wrong with it is told in one answer."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final, TypeVar, cast
from urllib.parse import unquote, unquote_to_bytes

from pydantic import ValidationError
from starlette.requests import Request

from weightd.api.faults import InvalidRequests, UnsupportedMediaType
from weightd.errors import IncompleteBody, InvalidRequest, Stalled
from weightd.model import Digest, Key, parse_callers_holder
from weightd.wire import requests as wire

JSON_BYTES_MAX: Final = 64 * 1024

_SHOWN: Final = 80
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ETAG: Final = re.compile(r'"([0-9A-Fa-f]{64})"')
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)

Query = TypeVar("Query", bound=wire.Request)
First = TypeVar("First")
Second = TypeVar("Second")


def path_text(request: Request, name: str) -> str:
    """One parameter of the path, percent-decoded exactly once.

    Routes match the path as it was sent, so that ``%2F`` separates nothing but
    what the parameter itself makes of it.  Bytes that are not UTF-8 come out as
    surrogates, which no name may contain.
    """
    sent: str = request.path_params[name]
    return unquote_to_bytes(sent).decode("utf-8", "surrogateescape") if "%" in sent else sent


def key_in_path(request: Request) -> Key:
    """The key that the path names.  Raises InvalidKey."""
    return Key.parse(path_text(request, "key"))


def holder_in_path(request: Request) -> str:
    """The holder that the path names.  Raises InvalidRequest."""
    return parse_callers_holder(path_text(request, "holder"))


def key_given(text: str | None) -> Key | None:
    """A key that a parameter or field names, if it was given.  Raises InvalidKey."""
    return None if text is None else Key.parse(text)


def read_query(request: Request, shape: type[Query]) -> Query:
    """The query's parameters.  Raises InvalidRequest naming all that are unknown or bad."""
    text: bytes = request.scope["query_string"]
    if not text:
        return cast(Query, _nothing_said(shape))
    given, faults = _parameters(text.decode("latin-1"))
    try:
        query = shape.model_validate(given)
    except ValidationError as error:
        raise gathered(faults + _faults(error, shape, "a parameter of this call")) from None
    if faults:
        raise gathered(faults)
    return query


def settle(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Read two parts of a request, and if either is at fault tell of both."""
    faults: list[InvalidRequest] = []
    found: list[First | Second] = []
    for part in (first, second):
        try:
            found.append(part())
        except InvalidRequests as error:
            faults += error.faults
        except InvalidRequest as error:
            faults.append(error)
    if faults:
        raise gathered(faults)
    return cast(tuple[First, Second], tuple(found))


async def read_json(
    request: Request, shape: type[Query], idle_timeout: float, *, most: int = JSON_BYTES_MAX
) -> Query:
    """The JSON body.  Raises InvalidRequest naming all that is unknown, missing or bad."""
    refuse_encoded(request)
    body = await _whole_body(request, idle_timeout, most)
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise gathered(_faults(error, shape, "a field of this body")) from None


def gathered(faults: list[InvalidRequest]) -> InvalidRequest:
    """One error for one or more faults of one request."""
    if len(faults) == 1:
        return faults[0]
    return InvalidRequests(
        what=", ".join(fault.what for fault in faults),
        reason="; ".join(fault.reason for fault in faults),
        faults=tuple(faults),
    )


def refuse_encoded(request: Request) -> None:
    """Bytes are kept as they are sent, so an encoded body would be kept encoded.

    Raises UnsupportedMediaType.
    """
    for header, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        encoding = request.headers.get(header, plain)
        if encoding.strip().lower() != plain:
            raise UnsupportedMediaType(header, encoding)


def body_length(request: Request) -> int | None:
    """The length the body declares, None when it comes in chunks.

    Raises InvalidRequest for a length that is none, and when there is no body.
    """
    lengths = request.headers.getlist("content-length")
    if "transfer-encoding" in request.headers:
        if lengths:
            raise InvalidRequest("Content-Length", "it contradicts Transfer-Encoding")
        return None
    if not lengths:
        raise InvalidRequest(
            "Content-Length",
            "there is no body; send the model's bytes, or Content-Length: 0 for an empty file",
        )
    if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0]):
        raise InvalidRequest("Content-Length", f"{_shown(', '.join(lengths))} is not one length")
    return int(lengths[0])


def only_header(request: Request, name: str) -> str | None:
    """A header that means one thing.  Raises InvalidRequest when it is sent twice."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(name, f"it is sent {len(values)} times; send it once")
    return values[0] if values else None


def create_conditions(request: Request) -> tuple[bool, Digest | None]:
    """What If-None-Match asks of a put: to create only, or to skip when this digest is here.

    Raises InvalidRequest for a condition that a put does not know: ignoring
    one could overwrite what the client meant to keep.
    """
    for header in ("If-Match", "If-Unmodified-Since", "Content-Range"):
        if header in request.headers:
            raise InvalidRequest(header, "a put does not take it; a model is put whole")
    condition = only_header(request, "If-None-Match")
    if condition is None:
        return False, None
    if condition.strip() == "*":
        return True, None
    digest = _ETAG.fullmatch(condition.strip())
    if digest is None:
        raise InvalidRequest(
            "If-None-Match", f'{_shown(condition)} is neither * nor one "<digest>" in quotes'
        )
    return False, digest[1].lower()


def prefers_text(request: Request) -> bool:
    """Whether ``text/plain`` is wanted rather than JSON: it must be named, wildcards mean JSON."""
    return prefers(request, "text/plain", over="application/json")


def prefers(request: Request, media: str, *, over: str) -> bool:
    """Whether ``media`` is named in ``Accept``, and not after the other."""
    accept = request.headers.get("accept", "")
    if media not in accept:
        return False
    ranks = {media: 0.0, over: 0.0}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name in ranks and ranks[name] == 0.0:
            ranks[name] = _quality(parameters)
    if ranks[media] == ranks[over]:
        return accept.index(media) < accept.find(over)
    return ranks[media] > ranks[over]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


@cache
def _nothing_said(shape: type[wire.Request]) -> wire.Request:
    """What a call without a query means; shapes are frozen, so that one does for all."""
    return shape()


def _parameters(text: str) -> tuple[dict[str, str], list[InvalidRequest]]:
    """Split a query; a repeated or wrongly escaped parameter is a fault, never a guess."""
    faults: list[InvalidRequest] = []
    pairs: list[tuple[str, str]] = []
    for piece in filter(None, text.split("&")):
        name, _, value = piece.partition("=")
        try:
            if _BAD_ESCAPE.search(piece):
                raise ValueError("a % is not followed by two hexadecimal digits")
            pairs.append((_unescaped(name), _unescaped(value)))
        except ValueError as error:
            faults.append(InvalidRequest(name[:_SHOWN], _bad_escape(error)))
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            faults.append(InvalidRequest(name[:_SHOWN], f"it is given {count} times; give it once"))
    return dict(pairs), faults


def _unescaped(text: str) -> str:
    return unquote(text.replace("+", " "), errors="strict")


def _bad_escape(error: ValueError) -> str:
    return "it is not valid UTF-8" if isinstance(error, UnicodeError) else str(error)


def _faults(error: ValidationError, shape: type[wire.Request], member: str) -> list[InvalidRequest]:
    """The faults that pydantic found, in our words."""
    known = ", ".join(shape.model_fields) or "nothing"
    faults = []
    for found in error.errors(include_url=False):
        what = ".".join(str(part) for part in found["loc"]) or "body"
        if found["type"] == "extra_forbidden":
            reason = f"it is not {member}, which takes {known}"
        elif found["type"] == "missing":
            reason = "it is required"
        else:
            reason = _reason(found.get("ctx", {}).get("error"), found["msg"], found["input"])
        faults.append(InvalidRequest(what[:_SHOWN], reason))
    return faults


def _reason(cause: object, message: str, given: object) -> str:
    if isinstance(cause, InvalidRequest):
        return cause.reason
    if isinstance(cause, ValueError):
        return f"{_shown(given)}: {cause}"
    if message.startswith("Invalid JSON"):
        return message[:1].lower() + message[1:]
    return f"{_shown(given)}: {message[:1].lower()}{message[1:]}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


async def _whole_body(request: Request, idle_timeout: float, most: int) -> bytes:
    """A small body, whole, within the timeout.  Raises InvalidRequest, Stalled, IncompleteBody."""
    try:
        async with asyncio.timeout(idle_timeout):
            return await _received(request, most)
    except TimeoutError:
        raise Stalled("The request's body", idle_timeout) from None


async def _received(request: Request, most: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise IncompleteBody(len(body), None)
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise InvalidRequest("body", f"it is longer than {most} bytes")
    return bytes(body)
