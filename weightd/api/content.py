"""One published file as an answer, whole or a range of it, by the conditions of the request.

The cache's context is left as soon as the peer is gone or takes nothing for
``idle_timeout`` seconds: until then the model cannot go.
"""

from __future__ import annotations

import logging
import re
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weightd.api.faults import PreconditionFailed, RangeNotSatisfiable
from weightd.api.hangup import abort
from weightd.api.protocol import CONNECTION
from weightd.api.sending import Cut, send_file
from weightd.cache.records import Contents
from weightd.errors import InvalidRequest

_log = logging.getLogger(__name__)
_RANGE: Final = re.compile(r"\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII)
_TAG: Final = re.compile(r'(?:W/)?"[^"]*"')


class Part(NamedTuple):
    """What to send of a file: ``status``, and the bytes from ``start`` up to ``stop``."""

    status: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


def select(method: str, headers: Headers, sha256: str, length: int) -> Part:
    """Decide by the conditions and the range what is sent of a file of ``length`` bytes.

    Raises PreconditionFailed, InvalidRequest for a range that is none, and
    RangeNotSatisfiable.
    """
    tag = f'"{sha256}"'
    if "if-match" in headers and not _names(headers["if-match"], tag, weak=False):
        raise PreconditionFailed(sha256)
    if "if-none-match" in headers and _names(headers["if-none-match"], tag, weak=True):
        return Part(304, 0, 0)
    asked = headers.get("range")
    if method != "GET" or asked is None or headers.get("if-range", tag).strip() != tag:
        return Part(200, 0, length)
    return _range(asked, length)


def _names(condition: str, tag: str, *, weak: bool) -> bool:
    """Whether a condition's list of entity tags has this one."""
    if condition.strip() == "*":
        return True
    tags = _TAG.findall(condition)
    return tag in tags or (weak and f"W/{tag}" in tags)


def _range(asked: str, length: int) -> Part:
    unit, equals, ranges = asked.partition("=")
    if not equals:
        raise InvalidRequest("Range", f"{asked[:80]!r} is not bytes=FIRST-LAST")
    if unit.strip().lower() != "bytes":
        # RFC 9110, 14.2: a unit that is not understood is ignored.
        return Part(200, 0, length)
    if "," in ranges:
        raise RangeNotSatisfiable(asked[:80], length)
    found = _RANGE.fullmatch(ranges)
    if found is None or not (found[1] or found[2]):
        raise InvalidRequest("Range", f"{asked[:80]!r} is not bytes=FIRST-LAST or bytes=-COUNT")
    first, last = found[1], found[2]
    if first and last and int(last) < int(first):
        raise InvalidRequest("Range", f"{asked[:80]!r} ends before it starts")
    start = int(first) if first else max(0, length - int(last))
    stop = min(length, int(last) + 1) if first and last else length
    if start >= stop:
        raise RangeNotSatisfiable(asked[:80], length)
    return Part(206, start, stop)


class ContentResponse(Response):
    """The answer with a file's bytes; it leaves ``opened``, the cache's open context."""

    def __init__(
        self, contents: Contents, part: Part, opened: AsyncExitStack, idle_timeout: float
    ) -> None:
        self.background = None
        self._contents = contents
        self._part = part
        self._opened = opened
        self._idle_timeout = idle_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        async with self._opened:
            await send(
                {
                    "type": "http.response.start",
                    "status": self._part.status,
                    "headers": self._fields(),
                }
            )
            if scope["method"] == "HEAD" or not self._part.length:
                await send({"type": "http.response.body"})
                return
            await self._stream(scope, send)

    def _fields(self) -> list[tuple[bytes, bytes]]:
        entry, part = self._contents.entry, self._part
        headers = [
            (b"etag", f'"{entry.sha256}"'.encode()),
            (b"accept-ranges", b"bytes"),
            # The key may name other content tomorrow; the tag says whether it does.
            (b"cache-control", b"no-cache"),
        ]
        if part.status != 304:
            headers.append((b"content-type", b"application/octet-stream"))
            headers.append((b"content-length", str(part.length).encode()))
        if part.status == 206:
            span = f"bytes {part.start}-{part.stop - 1}/{entry.bytes}"
            headers.append((b"content-range", span.encode()))
        return headers

    async def _stream(self, scope: Scope, send: Send) -> None:
        """Send the part, or close the connection short of its end."""
        lender, part = scope["extensions"][CONNECTION]["lender"], self._part
        descriptor = self._contents.descriptor
        try:
            await send_file(lender, descriptor, part.start, part.length, self._idle_timeout)
        except Cut as cut:
            self._log_cut(cut)
            abort(scope)
            # The server takes an answer that ends early for a fault, unless it knows why.
            await lender.gone.wait()
        else:
            await send({"type": "http.response.body"})

    def _log_cut(self, cut: Cut) -> None:
        if cut.reason is not None:
            figures = {
                "key": str(self._contents.record.manifest.key),
                "file": self._contents.entry.path,
                "bytes_left": cut.left,
                "reason": cut.reason,
            }
            _log.warning("content was cut before its end", extra=figures)
