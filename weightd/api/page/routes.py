"""`GET /`: the page, and what it shows.

One path answers both, by `Accept`, so that a door that shows the page has no further route open.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from weightd import errors
from weightd.api.desk import desk_of
from weightd.api.faults import Unhealthy
from weightd.api.node import probe
from weightd.api.page.sheet import GUARDS
from weightd.api.page.words import page_words
from weightd.api.reading import prefers, read_query
from weightd.api.routing import WATCH, Answer, Header, Route
from weightd.api.words import json_answer
from weightd.cache import Wanted
from weightd.wire.page import PageShape
from weightd.wire.requests import PageQuery


async def get_page(request: Request) -> Response:
    query = read_query(request, PageQuery)
    _must_be_asked_by_address(request)
    desk = desk_of(request)
    if not prefers(request, "application/json", over="text/html"):
        return await desk.sheet.answer()
    snapshot = await probe(desk)
    seen = await desk.overview(
        Wanted(
            limit=query.limit,
            order=query.order,
            descending=query.sort.startswith("-"),
            match=query.match,
        )
    )
    words = await page_words(snapshot, seen, desk.trouble, desk.socket)
    return json_answer(words, headers=GUARDS)


def _must_be_asked_by_address(request: Request) -> None:
    """Raise Forbidden for a name that anybody could have registered, at the listener on loopback.

    A page from elsewhere may have its own name lead to 127.0.0.1, and then its browser takes
    what is answered here for that page's own.
    """
    if request.app.state.door != "read-only":
        return
    host = request.headers.get("host", "").rpartition("]")
    name = "" if host[1] else host[2].partition(":")[0].rstrip(".").lower()
    labels = name.split(".")
    if len(labels) == 1 or labels[-1] == "localhost" or labels[-1].isdecimal():
        return
    reason = f"The page is not shown under the name {name[:80]!r}, which others may have lead here"
    raise errors.Forbidden(reason, "http://localhost, with the same port")


ROUTES: Final = (
    Route(
        "GET",
        "/",
        get_page,
        WATCH,
        "The page to look at, and what it shows",
        {
            200: Answer(
                "The page, or with `Accept: application/json` what it shows.",
                PageShape,
                media={"text/html": {"type": "string"}},
            )
        },
        (errors.IoError, Unhealthy),
        description=(
            "A browser gets the page, which asks here again for JSON every few seconds. On a "
            "listener that asks for the token, a browser shows it as the password of any user."
        ),
        for_browsers=True,
        query=PageQuery,
        headers=(Header("Accept", "`application/json` for the figures alone."),),
    ),
)
