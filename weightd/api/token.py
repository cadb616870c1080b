"""The token that callers on the network show: a door there is open to nobody else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from starlette.requests import Request
from starlette.responses import Response

from weightd.api.faults import AskForPassword
from weightd.api.reading import prefers
from weightd.api.routing import Handler
from weightd.errors import Unauthorized


class Token:
    """What callers must show, or None when nothing lets them in; may be replaced at any time."""

    def __init__(self, text: str | None = None) -> None:
        self._digest: bytes | None = None
        self.replace(text)

    def replace(self, text: str | None) -> None:
        """From now on only ``text`` lets in."""
        self._digest = None if text is None else _digest(text.encode())

    def __bool__(self) -> bool:
        return self._digest is not None

    def admits(self, shown: bytes) -> bool:
        """Whether it is this one; takes as long for any that is not."""
        return self._digest is not None and hmac.compare_digest(self._digest, _digest(shown))


def _digest(text: bytes) -> bytes:
    # Of one length for all, so that the comparison tells nothing about the token's.
    return hashlib.sha256(text).digest()


def guarded(
    handler: Handler,
    token: Token,
    admin: str,
    otherwise: Handler | None,
    *,
    for_browsers: bool = False,
) -> Handler:
    """What a route answers at a door on the network: what it is, to those who show the token.

    ``otherwise`` is what it answers while there is no token at all.  ``for_browsers`` takes it as
    a password as well: at one route that changes nothing, for a browser would go on to show it
    whatever page made it ask.
    """

    async def answer(request: Request) -> Response:
        if not token and otherwise is not None:
            return await otherwise(request)
        try:
            _must_show(request, token, admin, as_password=for_browsers)
        except Unauthorized as error:
            # A page that is open already says it itself, and no browser asks again and again.
            if for_browsers and not prefers(request, "application/json", over="text/html"):
                raise AskForPassword(error.reason, error.door) from None
            raise
        return await handler(request)

    return answer


def _must_show(request: Request, token: Token, admin: str, *, as_password: bool) -> None:
    """Raise Unauthorized unless the request has the token, once."""
    found = [value for name, value in request.headers.raw if name == b"authorization"]
    if not found:
        raise Unauthorized("The request has no token", admin)
    scheme, _, shown = found[0].partition(b" ")
    shown = shown.strip(b" ")
    if as_password and scheme.lower() == b"basic":
        scheme, shown = b"bearer", _password(shown)
    if len(found) > 1 or scheme.lower() != b"bearer" or not token.admits(shown):
        raise Unauthorized("The token is not the one of this daemon", admin)


def _password(credentials: bytes) -> bytes:
    """The password of HTTP's basic scheme, nothing when that is malformed."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
