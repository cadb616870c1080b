"""An HTTP client for weights: redirects that are looked at, connections that are kept.

Built on `http.client`, which reads heads well and leaves the bytes to whoever
wants them in a buffer of his own.  The rules it adds:

- every connection goes to an address that was checked, also after a redirect;
- a credential goes to the host it was given for, and from https nowhere but to https;
- every wait has a bound, and `close` ends all of them from any thread.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from weightd import __version__
from weightd.errors import OriginFailed, OriginTimeout
from weightd.origins.answers import LENGTH_MAX
from weightd.origins.contract import Listing, Patience
from weightd.origins.speaking import (
    Refused,
    hushed,
    hushing,
    refused,
    repeats,
    secrets_of,
    speaking,
    words_of_xml,
)
from weightd.origins.urls import redirected, target_of
from weightd.origins.wire import Target, Wire, dial

REDIRECTS_MAX: Final = 5
IDLE_MAX: Final = 16
"""Idle connections kept for each host: as many as one download runs streams."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_WORDS: Final = frozenset({"text/plain", "application/xml", "text/xml"})
_WORDS_BYTES_MAX: Final = 4096
_DRAIN_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Credential:
    """A header that proves who asks, for one host alone.

    ``name`` is what the operator calls it, or where it was found.
    """

    header: tuple[str, str]
    target: Target
    name: str

    def __repr__(self) -> str:
        return f"Credential({self.name!r} for {self.target.authority})"


class HttpClient:
    """Requests for one reference.  Used by several threads at once."""

    def __init__(
        self,
        source: str,
        patience: Patience,
        *,
        ca_file: str | None = None,
        credential: Credential | None = None,
    ) -> None:
        """``source`` is the reference as errors show it."""
        self.source = source
        self.patience = patience
        self.credential = credential
        self._secrets = () if credential is None else secrets_of(credential.header[1])
        self._ca_file = ca_file
        self._changing = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[Target, list[Wire]] = {}
        self._live: set[Wire] = set()
        self._waits: list[Callable[[], None]] = []
        self._closed = False

    def hushing(self) -> AbstractContextManager[None]:
        """What a server was sent and repeats is in no error that leaves the block."""
        return hushing(self._secrets)

    def hushed(self, words: str) -> str:
        """A server's words without what it was sent, and without queries."""
        return hushed(words, self._secrets)

    def must_not_repeat(self, listing: Listing) -> Listing:
        """The listing.  Raises OriginFailed where the credential is in what would be kept of it."""
        for file in listing.files:
            if repeats(f"{file.path}\n{file.validator}", self._secrets):
                words = "its listing cannot be used: it repeats the credential"
                raise OriginFailed(self.source, words, retryable=False)
        return listing

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask for a body.  The answer must be closed."""
        return self.request("GET", url, headers or {})

    def request(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """Ask, going where redirects lead.  An answer of any other status is returned as it is.

        Raises OriginFailed for a redirect that is not to be followed, and OriginTimeout.
        """
        hops: list[Message] = []
        while True:
            with speaking(self.source, "connecting", self.patience.connect):
                parts = urlsplit(url)
                target = target_of(parts)
            answer = self._exchange(method, parts, target, headers)
            answer.hops = tuple(hops)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None:
                return answer
            hops.append(answer.headers)
            answer.discard()
            if len(hops) > REDIRECTS_MAX:
                words = f"it redirects more than {REDIRECTS_MAX} times"
                raise OriginFailed(self.source, words, retryable=False)
            with speaking(self.source, "a redirect", self.patience.connect):
                url = redirected(url, location)

    def close(self) -> None:
        """Cut every connection, also those that other threads wait for."""
        with self._changing:
            self._closed = True
            idle = [wire for wires in self._idle.values() for wire in wires]
            self._idle.clear()
            live, waits = list(self._live), list(self._waits)
        for cut in waits:
            cut()
        for wire in live:
            wire.cut()
        for wire in idle:
            wire.close()

    # -- One request ---------------------------------------------------------------

    def _exchange(
        self, method: str, parts: SplitResult, target: Target, headers: Mapping[str, str]
    ) -> Answer:
        """One request and the head of its answer, on a kept connection if one still stands."""
        what = f"an answer of {target.authority}"
        with speaking(self.source, what, self.patience.progress):
            while (wire := self._take(target)) is not None:
                try:
                    return self._ask(wire, method, parts, target, headers)
                except (http.client.RemoteDisconnected, ConnectionError):
                    # It ended it between two requests, as any server may; nothing was answered.
                    if wire.cut_off:
                        raise ConnectionAbortedError from None
        with speaking(self.source, f"connecting to {target.authority}", self.patience.connect):
            wire = self._dial(target)
        with speaking(self.source, what, self.patience.progress):
            return self._ask(wire, method, parts, target, headers)

    def _ask(
        self,
        wire: Wire,
        method: str,
        parts: SplitResult,
        target: Target,
        headers: Mapping[str, str],
    ) -> Answer:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if wire.proxied is not None:
            path = f"{target.scheme}://{target.authority}{path}"
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = wire
        # Not the connection's own way to an answer, which closes the socket
        # as soon as the head says that the server will.
        response = http.client.HTTPResponse(cast(socket.socket, wire), method=method)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in self._headers(target, wire, headers).items():
                connection.putheader(name, value)
            wire.expect_head()
            connection.endheaders()
            response.begin()
            _must_be_a_length(response.headers)
            wire.expect_body()
        except BaseException:
            response.close()
            self.drop(wire)
            raise
        return Answer(self, wire, target, response, method)

    def _headers(self, target: Target, wire: Wire, headers: Mapping[str, str]) -> dict[str, str]:
        sent = {
            "Host": target.authority,
            "User-Agent": f"weightd/{__version__}",
            "Accept": "*/*",
            # A compressed body is neither as long as was listed nor what is to be hashed.
            "Accept-Encoding": "identity",
            **headers,
        }
        if self.credential is not None and self.credential.target == target:
            name, value = self.credential.header
            sent[name] = value
        if wire.proxied is not None and wire.proxied.authorization is not None:
            sent["Proxy-Authorization"] = wire.proxied.authorization
        return sent

    # -- Connections ---------------------------------------------------------------

    def _take(self, target: Target) -> Wire | None:
        while True:
            with self._changing:
                kept = self._idle.get(target)
                if not kept:
                    return None
                wire = kept.pop()
                self._live.add(wire)
            if wire.idle:
                return wire
            self.drop(wire)

    def _dial(self, target: Target) -> Wire:
        tls = self._context() if target.scheme == "https" else None
        wire = dial(target, self.patience, tls, self._guarded)
        with self._changing:
            self._live.add(wire)
            closed = self._closed
        if closed:
            self.drop(wire)
            raise ConnectionAbortedError
        return wire

    @contextmanager
    def _guarded(self, cut: Callable[[], None]) -> Iterator[None]:
        """Have `close` end a wait that no connection stands for yet."""
        with self._changing:
            if self._closed:
                raise ConnectionAbortedError
            self._waits.append(cut)
        try:
            yield
        finally:
            with self._changing:
                self._waits.remove(cut)
                closed = self._closed
        if closed:
            # A socket that was shut looks as if it were connected.
            raise ConnectionAbortedError

    def _context(self) -> ssl.SSLContext:
        with self._changing:
            if self._tls is None:
                try:
                    self._tls = ssl.create_default_context(cafile=self._ca_file)
                except OSError as error:
                    words = f"ca_file {self._ca_file} cannot be used ({error.strerror or error})"
                    raise Refused(words) from None
            return self._tls

    def keep(self, wire: Wire, target: Target) -> None:
        """Take a connection back whose answer was read to its end."""
        with self._changing:
            kept = self._idle.setdefault(target, [])
            if not self._closed and not wire.cut_off and len(kept) < IDLE_MAX:
                self._live.discard(wire)
                kept.append(wire)
                return
        self.drop(wire)

    def drop(self, wire: Wire) -> None:
        """Let a connection go that is of no more use."""
        with self._changing:
            self._live.discard(wire)
        wire.close()


def _must_be_a_length(headers: Message) -> None:
    """Raise Refused for a Content-Length that no file has."""
    told = headers.get("Content-Length", "").strip()
    if told.isascii() and told.isdigit() and (len(told) > 40 or int(told) > LENGTH_MAX):
        raise Refused(f"it tells a length that nothing has ({told[:20]}…)")


def _told_length(response: http.client.HTTPResponse) -> int | None:
    told = response.headers.get("Content-Length", "").strip()
    if not (told.isascii() and told.isdigit()) or response.chunked:
        return None
    return int(told)


class Answer:
    """The head of an answer, and its body as long as nobody closes it."""

    def __init__(
        self,
        client: HttpClient,
        wire: Wire,
        target: Target,
        response: http.client.HTTPResponse,
        method: str,
    ) -> None:
        self.status = response.status
        self.headers: Message = response.headers
        self.hops: tuple[Message, ...] = ()
        """The heads of the redirects that led here."""
        self.target = target
        self._client = client
        self._wire = wire
        self._response = response
        self._reusable = not response.will_close
        # Once, not for each piece of the body that is read.
        self.length = _told_length(response)
        """The body's length as the head tells it."""
        self._bodiless = method == "HEAD" or response.status in (204, 304)
        self._taken = 0
        self._ended = self._bodiless or self.length == 0

    def readinto(self, buffer: memoryview) -> int:
        """Some bytes of the body, as they come; 0 at its end, or where it broke off.

        Raises as sockets and `http.client` do.
        """
        size = 0 if self._ended else self._some(buffer)
        self._taken += size
        if self._taken == self.length or (size == 0 and self._response.chunked):
            self._ended = True
        return size

    def _some(self, buffer: memoryview) -> int:
        if self._response.chunked:
            self._wire.allow(len(buffer), self._taken)
            chunk = self._response.read1(len(buffer))
            buffer[: len(chunk)] = chunk
            return len(chunk)
        if self.length is not None:
            buffer = buffer[: self.length - self._taken]
        # One call of the system, straight into the caller's buffer, once what
        # came along with the head is used up.
        return self._response.fp.readinto1(buffer)

    def read(self, most: int) -> bytes:
        """The whole body.  Raises OriginFailed, also for more than ``most`` bytes of it."""
        source = self._client.source
        body = bytearray()
        chunk = memoryview(bytearray(_DRAIN_BYTES))
        with speaking(source, "a body", self._client.patience.progress):
            while size := self.readinto(chunk):
                body += chunk[:size]
                if len(body) > most:
                    raise Refused(f"it answers more than {most} bytes where a list was expected")
        if self.length is not None and len(body) < self.length:
            raise OriginFailed(source, f"it ended after {len(body)} of {self.length} bytes")
        return bytes(body)

    def discard(self) -> None:
        """Close it, reading a short body first so that the connection can go on."""
        if self._reusable and self.length is not None and self.length <= _DRAIN_BYTES:
            try:
                self.read(_DRAIN_BYTES)
            except (OriginFailed, OriginTimeout):
                pass  # nobody wants it; it only costs the connection
        self.close()

    def failure(self) -> OriginFailed:
        """What an answer of this status is, in the origin's words; closes it."""
        words = self.headers.get("X-Error-Message", "") or self._short_words()
        self.discard()
        words = self._client.hushed(words)
        return refused(self._client.source, self.status, words, self.headers.get("Retry-After"))

    def _short_words(self) -> str:
        """What a short body says in words; nothing where it is a page for a browser."""
        kind = self.headers.get_content_type()
        if self._bodiless or kind not in _WORDS or (self.length or 0) > _WORDS_BYTES_MAX:
            return ""
        try:
            words = self.read(_WORDS_BYTES_MAX).decode(errors="replace")
        except (OriginFailed, OriginTimeout):
            return ""
        return words if kind == "text/plain" else words_of_xml(words)

    def cut(self) -> None:
        """Wake the thread that reads, which fails."""
        self._wire.cut()

    def close(self) -> None:
        """Give the connection back, or end it where bytes are left.  By the reading thread."""
        self._response.close()
        if self._reusable and self._ended:
            self._client.keep(self._wire, self.target)
        else:
            self._client.drop(self._wire)
