"""What is said to a peer whose request the parser refused, before any app sees it."""

from __future__ import annotations

import contextvars
import re
from typing import Final
from urllib.parse import unquote_to_bytes

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from weightd.api import log_lines
from weightd.api.problems import problem
from weightd.errors import InvalidKey, InvalidRequest, WeightdError
from weightd.model import Key
from weightd.request_id import HEADER, REQUEST_ID

_KEYED: Final = re.compile(rb"/v1/(?:models|content|pins/[^/]*)/(.*)", re.DOTALL)


def told(error: httptools.HttpParserError, head: bytes) -> WeightdError:
    """What the parser found, with the offending part named where it can be told."""
    line = head.partition(b"\r\n")[0]
    target = line.split(b" ")[1] if line.count(b" ") >= 2 else b""
    reason = str(error) or type(error).__name__
    if "Content-Length" in reason:
        return InvalidRequest("Content-Length", reason)
    if "Transfer-Encoding" in reason or "chunk" in reason:
        return InvalidRequest("Transfer-Encoding", reason)
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return InvalidRequest("method", f"{_text(line[:40])!r} begins with no method")
    if isinstance(error, httptools.HttpParserInvalidURLError | httptools.HttpParserCallbackError):
        return _bad_target(target)
    return InvalidRequest("request", reason)


def _bad_target(target: bytes) -> WeightdError:
    """A target that cannot be parsed: a bad key if it has one, since that is what was meant."""
    keyed = _KEYED.fullmatch(target.partition(b"?")[0])
    if keyed is not None:
        try:
            Key.parse(unquote_to_bytes(keyed[1]).decode("utf-8", "surrogateescape"))
        except InvalidKey as error:
            return error
    return InvalidRequest(
        "path", f"{_text(target[:80])!r} is no path; percent-encode what is not ASCII"
    )


def _text(sent: bytes) -> str:
    return sent.decode("utf-8", "backslashreplace")


def written(error: WeightdError, id: str) -> bytes:
    """The whole answer, as it goes over the connection; it has an id, as any has, and its line."""
    answer = problem(error)
    aside = contextvars.copy_context()
    aside.run(REQUEST_ID.set, id)
    aside.run(log_lines.tell_refusal, error)
    lines = [STATUS_LINE[answer.status_code]]
    fields = [*answer.raw_headers, (HEADER, id.encode())]
    lines += [name + b": " + value + b"\r\n" for name, value in fields]
    return b"".join([*lines, b"connection: close\r\n\r\n", bytes(answer.body)])
