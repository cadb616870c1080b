"""In which order idle generations go.

A policy only orders.  What may go at all (nothing pinned, in use or leaving)
is the ledger's business, which skips over what it must not take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, Protocol, TypeAlias

from weightd.model import GenerationId


class Policy(Protocol):
    """The order of eviction over every generation that a lookup can answer."""

    def used(self, id: GenerationId) -> None:
        """Note that ``id`` arrived or was used just now."""
        ...

    def forget(self, id: GenerationId) -> None:
        """Note that ``id`` is no longer there; unknown ids are ignored."""
        ...

    def order(self) -> Iterator[GenerationId]:
        """Go through all ids, the first to evict first."""
        ...


class LeastRecentlyUsed:
    """The one that went unused longest goes first."""

    def __init__(self) -> None:
        self._idle: dict[GenerationId, None] = {}

    def used(self, id: GenerationId) -> None:
        self._idle.pop(id, None)
        self._idle[id] = None

    def forget(self, id: GenerationId) -> None:
        self._idle.pop(id, None)

    def order(self) -> Iterator[GenerationId]:
        return iter(self._idle)


PolicyName: TypeAlias = Literal["lru"]

POLICIES: Final[dict[PolicyName, Callable[[], Policy]]] = {"lru": LeastRecentlyUsed}
"""Every policy by the name that the settings give it."""
