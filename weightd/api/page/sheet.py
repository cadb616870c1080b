"""The page as it is sent: one document with its style and its script in it.

They are files of their own beside this one, read once, when somebody looks: a change needs no
build, and is seen after a restart.  The policy that is sent with the document allows exactly
these two by their hashes, and no other script or style, whatever a name of a model says.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.responses import Response

_SCRIPTS: Final = ("words", "table", "figures", "budget", "lists", "models", "main")
"""In the order in which they stand in the one script of the page."""

GUARDS: Final = {
    "Cache-Control": "no-store",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""What both answers say: nobody keeps them, guesses what they are, or has them in a page of his."""


@dataclass(frozen=True, slots=True)
class Document:
    """The page, and the policy under which a browser shows it."""

    html: bytes
    policy: str


class Sheet:
    """Reads the page when it is first asked for."""

    def __init__(self) -> None:
        self._document: Document | None = None

    async def answer(self) -> Response:
        """The page, for a browser."""
        if self._document is None:
            self._document = await asyncio.to_thread(read_document)
        headers = GUARDS | {"Content-Security-Policy": self._document.policy}
        return Response(self._document.html, headers=headers, media_type="text/html")


def read_document() -> Document:
    """Put the page together from its files.  Blocks."""
    place = files(__package__)
    style = place.joinpath("page.css").read_text("utf-8")
    script = "".join(place.joinpath(f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    html = place.joinpath("page.html").read_text("utf-8")
    # The content of an element is all between its tags, so the hash is of that and no line more.
    html = html.replace("/* page.css */", style).replace("/* page.js */", script)
    return Document(html.encode(), _policy(style, script))


def _policy(style: str, script: str) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
