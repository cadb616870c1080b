"""What a person wants to see of the node at one look, bounded however much there is."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final, Literal, TypeAlias

from weightd.cache.context import Context
from weightd.cache.fetching.terms import FetchView
from weightd.cache.keepers import pins_of, uses_of
from weightd.cache.records import PinView, UploadView
from weightd.cache.refusals import Refusal
from weightd.cache.underway import Brought
from weightd.ledger import Generation
from weightd.model import Eviction, GenerationId, Key

KEEPERS_SHOWN: Final = 8
"""Of those who keep one model, so many are named."""

AT_ONCE: Final = 1000
"""Models that are looked through before other requests get their turn."""

ARRIVALS_SHOWN: Final = 100
FAILURES_SHOWN: Final = 10
REFUSALS_SHOWN: Final = 20

Order: TypeAlias = Literal["key", "bytes", "published", "used", "hits", "kept"]
"""By what the models are put in order, each from the least to the greatest."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which models to tell of: ``limit`` of those with ``match`` in their key, in ``order``."""

    limit: int
    order: Order = "used"
    descending: bool = True
    match: str = ""


@dataclass(frozen=True, slots=True)
class ModelView:
    """One generation; ``keepers`` are some of the ``pins``, and the uses that the kernel tells."""

    id: GenerationId
    current: bool
    bytes: int
    published_at: float
    last_used_at: float
    hits: int
    pins: int
    use: Literal["hold", "use"] | None
    source: str | None
    keepers: tuple[PinView, ...]
    keepers_total: int


@dataclass(frozen=True, slots=True)
class ArrivalView:
    """A put or an adoption under way, or an upload that is not begun yet: it may wait for room."""

    kind: Brought
    key: Key
    waits: bool
    bytes_done: int
    bytes_total: int | None
    since: float


@dataclass(frozen=True, slots=True)
class Overview:
    """See the module's docstring.

    ``generations`` is how many there are, replaced ones included, ``matching`` how many of them
    were to be told of, and ``arrivals`` how many arrivals of all kinds; ``held_bytes`` is what
    the kernel says is held or in use.  ``unwritable`` says why the last pin was not recorded.
    """

    now: float
    generations: int
    matching: int
    models: tuple[ModelView, ...]
    held_bytes: int
    arrivals: int
    brought: tuple[ArrivalView, ...]
    uploads: tuple[UploadView, ...]
    fetches: tuple[FetchView, ...]
    failures: tuple[FetchView, ...]
    evictions: tuple[Eviction, ...]
    refusals: tuple[Refusal, ...]
    unwritable: str | None


async def overview(
    context: Context,
    wanted: Wanted,
    *,
    uploads: Sequence[UploadView],
    fetches: tuple[Sequence[FetchView], int],
    failures: Sequence[FetchView],
    evictions: Sequence[Eviction],
) -> Overview:
    """Everything but the figures of `Snapshot`; ``fetches`` come with how many there are."""
    found, matching = await _chosen(context, wanted)
    brought = context.under_way
    return Overview(
        now=context.clock.now(),
        generations=context.ledger.usage().models + context.ledger.usage().retired_models,
        matching=matching,
        models=tuple(_model(context, one) for one in found),
        held_bytes=sum(one.bytes for one in _seen(context)),
        arrivals=len(brought) + len(uploads) + fetches[1],
        brought=tuple(
            ArrivalView(one.kind, one.key, one.waits, one.done, one.bytes, one.since)
            for one in islice(brought, ARRIVALS_SHOWN)
        ),
        uploads=tuple(uploads[:ARRIVALS_SHOWN]),
        fetches=tuple(fetches[0]),
        failures=tuple(failures),
        evictions=tuple(evictions),
        refusals=tuple(context.refusals.newest_first()[:REFUSALS_SHOWN]),
        unwritable=context.unwritable,
    )


async def _chosen(context: Context, wanted: Wanted) -> tuple[list[Generation], int]:
    """The generations to tell of, in order, and how many match.

    Of ten thousand a part at a time, so that every other request goes in between.
    """
    needle, rank = wanted.match.casefold(), _rank(context, wanted.order)
    generations = list(context.ledger.generations())
    found: list[tuple[float | str, Generation]] = []
    for first in range(0, len(generations), AT_ONCE):
        if first:
            await asyncio.sleep(0)
        found += [
            (rank(one), one)
            for one in generations[first : first + AT_ONCE]
            if not needle or needle in str(one.id.key).casefold()
        ]
    choose = heapq.nlargest if wanted.descending else heapq.nsmallest
    chosen = choose(wanted.limit, found, key=itemgetter(0))
    # Where that is equal, by key.
    chosen.sort(key=lambda each: (each[0], str(each[1].id.key)), reverse=wanted.descending)
    # Some may have gone meanwhile.
    return [one for _, one in chosen if context.ledger.generation(one.id) is one], len(found)


def _rank(context: Context, order: Order) -> Callable[[Generation], float | str]:
    """What puts generations in order."""
    models = context.models
    ranks: dict[Order, Callable[[Generation], float | str]] = {
        "key": lambda one: str(one.id.key),
        "bytes": lambda one: one.bytes,
        "published": lambda one: models[one.id].manifest.published_at if one.id in models else 0.0,
        "used": lambda one: one.last_used,
        "hits": lambda one: one.hits,
        "kept": lambda one: len(one.pins) + one.in_use,
    }
    return ranks[order]


def _model(context: Context, generation: Generation) -> ModelView:
    manifest = context.models[generation.id].manifest
    seen = context.sightings.get(generation.id)
    current = context.ledger.current(generation.id.key) is generation
    uses = [] if seen is None else uses_of(generation, seen, current=current)
    keepers = [*uses, *pins_of(generation, current=current, most=KEEPERS_SHOWN)]
    return ModelView(
        id=generation.id,
        current=current,
        bytes=manifest.bytes,
        published_at=manifest.published_at,
        last_used_at=generation.last_used,
        hits=generation.hits,
        pins=len(generation.pins),
        use=None if seen is None else seen.use.kind,
        source=manifest.source,
        keepers=tuple(keepers[:KEEPERS_SHOWN]),
        keepers_total=len(generation.pins) + len(uses),
    )


def _seen(context: Context) -> Iterator[Generation]:
    """Those of which the kernel says that they are held or in use."""
    for id in context.sightings:
        generation = context.ledger.generation(id)
        if generation is not None:
            yield generation
