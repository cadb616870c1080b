"""The token that callers on the network show: a door there is open to nobody else."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request
from starlette.responses import Response

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


def guarded(handler: Handler, token: Token, admin: str, otherwise: Handler | None) -> Handler:
    """What a route answers at a door on the network: what it is, to those who show the token.

    ``otherwise`` is what it answers while there is no token at all.
    """

    async def answer(request: Request) -> Response:
        if not token and otherwise is not None:
            return await otherwise(request)
        _must_show(request, token, admin)
        return await handler(request)

    return answer


def _must_show(request: Request, token: Token, admin: str) -> None:
    """Raise Unauthorized unless the request has the token, once."""
    found = [value for name, value in request.headers.raw if name == b"authorization"]
    if not found:
        raise Unauthorized("The request has no token", admin)
    scheme, _, shown = found[0].partition(b" ")
    if len(found) > 1 or scheme.lower() != b"bearer" or not token.admits(shown.strip(b" ")):
        raise Unauthorized("The token is not the one of this daemon", admin)
