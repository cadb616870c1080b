"""HTTP/1.1 as a client of weightd's needs it, without any I/O.

Bytes go in, events come out; who moves the bytes is the business of the two
transports.  Both speak by this module, so that they cannot differ, and a
command that asks for one path need not import the standard library's client
with the parser of e-mail below it.
"""

from __future__ import annotations

from weightd.client.shapes import Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final, TypeAlias

    from weightd.client.effects import Request

HEAD_BYTES_MAX: Final = 64 * 1024
_LINE_BYTES_MAX: Final = 1024
_UNRESERVED: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)


class BrokenAnswer(Exception):
    """What came is no whole answer: the connection broke, or the peer is no daemon of ours."""


class Head(Shape):
    """The start of an answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


class Data(Shape):
    """A piece of the answer's body."""

    bytes: bytes


class End(Shape):
    """The answer is whole; ``reusable`` says whether the connection takes another request."""

    reusable: bool


class NeedData:
    """Nothing can be said before more bytes are received."""


NEED_DATA: Final = NeedData()

Event: TypeAlias = Head | Data | End | NeedData


def rendered(request: Request) -> bytes:
    """A request up to its body; one that is long is sent only when it is asked for."""
    headers = dict(request.headers)
    if request.body is not None:
        headers |= {"Content-Length": str(request.body.length), "Expect": "100-continue"}
    elif request.content or request.method == "POST":
        headers["Content-Length"] = str(len(request.content))
    lines = [f"{request.method} {request.target} HTTP/1.1", "Host: weightd"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join(lines)
    assert text.count("\n") == len(lines) - 1, "a header smuggles in another line"
    return (text + "\r\n\r\n").encode("latin-1") + request.content


def quoted(text: str, safe: str = "") -> str:
    """Percent-encode all but unreserved and ``safe`` characters.

    >>> quoted("org/my model@v1", "/@")
    'org/my%20model@v1'
    """
    kept = _UNRESERVED | frozenset(safe.encode())
    encoded = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in encoded)


class AnswerReader:
    """Reads the answer to one request; statuses below 200 are heads without an end."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._buffer = bytearray()
        self._closed = False
        self._left: int | None = 0
        """Bytes of the body, or of its chunk, still to come; None: until the peer closes."""
        self._chunked = False
        self._reusable = True
        self._state = "head"

    def receive(self, data: bytes) -> None:
        """Take what came from the connection; nothing means that the peer closed it."""
        self._closed = self._closed or not data
        self._buffer += data

    def next_event(self) -> Event:
        """What can be told by now.  Raises BrokenAnswer."""
        event = self._next()
        if event is NEED_DATA and self._closed:
            raise BrokenAnswer("the connection was closed before the answer's end")
        return event

    def _next(self) -> Event:
        if self._state == "head":
            return self._head()
        if self._state == "size":
            return self._chunk_size()
        if self._state == "trailers":
            return self._trailers()
        if self._state == "body":
            return self._body()
        return End(self._reusable and not self._buffer)

    def _head(self) -> Event:
        stop = self._buffer.find(b"\r\n\r\n")
        if stop < 0:
            self._bound(HEAD_BYTES_MAX, "head")
            return NEED_DATA
        line, *fields = bytes(self._buffer[:stop]).decode("latin-1").split("\r\n")
        del self._buffer[: stop + 4]
        head = Head(_status(line), _headers(fields))
        if head.status >= 200:
            self._expect_body(head)
        return head

    def _expect_body(self, head: Head) -> None:
        self._reusable = head.headers.get("connection", "").lower() != "close"
        if self._method == "HEAD" or head.status in (204, 304):
            self._state = "end"
        elif head.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked, self._state = True, "size"
        else:
            self._left = _length(head.headers.get("content-length"))
            self._reusable = self._reusable and self._left is not None
            self._state = "body" if self._left != 0 else "end"

    def _body(self) -> Event:
        if not self._buffer:
            if self._left is None and self._closed:
                self._state = "end"
                return End(reusable=False)
            return NEED_DATA
        piece = bytes(self._buffer if self._left is None else self._buffer[: self._left])
        del self._buffer[: len(piece)]
        if self._left is not None:
            self._left -= len(piece)
            if not self._left:
                self._state = "size" if self._chunked else "end"
        return Data(piece)

    def _chunk_size(self) -> Event:
        """Read ``size CRLF``, before it the CRLF that ends the chunk before; 0 is the last one."""
        while True:
            line = self._line()
            if line is None:
                return NEED_DATA
            if line:
                break
        try:
            self._left = int(line.partition(b";")[0], 16)
        except ValueError:
            raise BrokenAnswer(f"a chunk begins with {line[:40]!r}") from None
        if self._left:
            self._state = "body"
            return self._next()
        return self._trailers()

    def _trailers(self) -> Event:
        """Read up to the empty line that ends them; nothing of ours sends any."""
        self._state = "trailers"
        while (line := self._line()) is not None:
            if not line:
                self._state = "end"
                return self._next()
        return NEED_DATA

    def _line(self) -> bytes | None:
        """The next line without its end, None before that has come."""
        stop = self._buffer.find(b"\r\n")
        if stop < 0:
            self._bound(_LINE_BYTES_MAX, "chunk")
            return None
        line = bytes(self._buffer[:stop])
        del self._buffer[: stop + 2]
        return line

    def _bound(self, most: int, what: str) -> None:
        if len(self._buffer) > most:
            raise BrokenAnswer(f"the {what} of the answer is longer than {most} bytes")


def _status(line: str) -> int:
    version, _, rest = line.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
        raise BrokenAnswer(f"an answer begins with {line[:40]!r}: this is no daemon of ours")
    return int(status)


def _headers(fields: list[str]) -> dict[str, str]:
    pairs = (field.partition(":") for field in fields)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _length(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BrokenAnswer(f"Content-Length is {text[:40]!r}")
    return int(text)
