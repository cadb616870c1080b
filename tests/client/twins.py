"""The two clients behind one face, so that a test of one is a test of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from weightd.client import AsyncClient, Client

TWINS: Final = ("blocking", "awaiting")


class _Awaited:
    """An `AsyncClient` whose calls block; its loop runs in a thread of its own."""

    def __init__(self, portal: BlockingPortal, client: AsyncClient) -> None:
        self._portal = portal
        self._client = client

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._client, name)
        if name in ("hold", "lease"):
            return lambda *given, **named: self._context(own, *given, **named)
        if name == "events":
            return lambda *given, **named: self._items(own(*given, **named))
        return lambda *given, **named: self._portal.call(partial(own, *given, **named))

    def _context(self, own: Any, *given: Any, **named: Any) -> AbstractContextManager[Any]:
        return self._portal.wrap_async_context_manager(own(*given, **named))

    def _items(self, items: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._portal.call(items.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            self._portal.call(items.aclose)


@contextmanager
def twin(kind: str, *given: Any, **named: Any) -> Iterator[Client]:
    """A client of a kind, to be called as the one that blocks."""
    if kind == "blocking":
        with Client(*given, **named) as client:
            yield client
        return
    with start_blocking_portal() as portal:
        awaited = AsyncClient(*given, **named)
        try:
            yield cast(Client, _Awaited(portal, awaited))
        finally:
            portal.call(awaited.close)
