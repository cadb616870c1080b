"""What has happened since the start, counted."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from weightd.cache.fetching.terms import FETCH_RESULTS
from weightd.cache.records import HistogramFigures
from weightd.model import EvictionReason, GenerationId
from weightd.origins.contract import ORIGIN_KINDS, OriginKind

Lookup = Literal["hit", "miss"]
PutResult = Literal["created", "same", "refused", "failed", "cancelled"]
Rejection = Literal["too-large", "blocked", "disk-full"]

LOOKUP_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
TRANSFER_SECONDS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0)
FETCH_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10800.0, 36000.0)

REGRET_SECONDS: Final = 86400.0
"""A model that comes back within a day of its eviction should not have gone."""

REGRET_REMEMBERED: Final = 10_000


class Histogram:
    """Observations counted by upper bound, in seconds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def figures(self) -> HistogramFigures:
        bounds = (*self._bounds, float("inf"))
        return HistogramFigures(bounds, tuple(self._counts), self._sum)


def _zeros(labels: object) -> dict[str, int]:
    return dict.fromkeys(get_args(labels), 0)


def _no_fetches() -> dict[tuple[OriginKind, str], int]:
    return {(kind, result): 0 for kind in ORIGIN_KINDS for result in FETCH_RESULTS}


@dataclass(slots=True)
class Counters:
    """Every counter of the cache; each possible label is there from the start."""

    lookups: dict[str, int] = field(default_factory=lambda: _zeros(Lookup))
    lookup_bytes: dict[str, int] = field(default_factory=lambda: _zeros(Lookup))
    evictions: dict[str, int] = field(default_factory=lambda: _zeros(EvictionReason))
    evicted_bytes: dict[str, int] = field(default_factory=lambda: _zeros(EvictionReason))
    rejections: dict[str, int] = field(default_factory=lambda: _zeros(Rejection))
    puts: dict[str, int] = field(default_factory=lambda: _zeros(PutResult))
    put_bytes: int = 0
    refetched_bytes: int = 0
    damaged_models: int = 0
    expired_pins: int = 0
    hit_seconds: Histogram = field(default_factory=lambda: Histogram(LOOKUP_SECONDS))
    admission_seconds: Histogram = field(default_factory=lambda: Histogram(TRANSFER_SECONDS))
    put_seconds: Histogram = field(default_factory=lambda: Histogram(TRANSFER_SECONDS))
    fetches: dict[tuple[OriginKind, str], int] = field(default_factory=_no_fetches)
    fetch_bytes: dict[OriginKind, int] = field(
        default_factory=lambda: dict.fromkeys(ORIGIN_KINDS, 0)
    )
    fetch_joined: int = 0
    fetch_seconds: Histogram = field(default_factory=lambda: Histogram(FETCH_SECONDS))
    fetched_seconds: Histogram = field(default_factory=lambda: Histogram(FETCH_SECONDS))
    _receiving: threading.Lock = field(default_factory=threading.Lock)
    _evicted_at: OrderedDict[GenerationId, float] = field(default_factory=OrderedDict)

    def hit(self, size: int, seconds: float) -> None:
        """A lookup was answered with ``size`` bytes of model, ``seconds`` after it was wished."""
        self.lookups["hit"] += 1
        self.lookup_bytes["hit"] += size
        self.hit_seconds.observe(seconds)

    def miss(self) -> None:
        self.lookups["miss"] += 1

    def received(self, size: int) -> None:
        """So many bytes of a body came in; called by the thread that reads it."""
        with self._receiving:
            self.put_bytes += size

    def fetched(self, kind: OriginKind, size: int) -> None:
        """So many bytes of files came from an origin; called by the threads that read them."""
        with self._receiving:
            self.fetch_bytes[kind] += size

    def evicted(self, id: GenerationId, size: int, reason: EvictionReason, now: float) -> None:
        self.evictions[reason] += 1
        self.evicted_bytes[reason] += size
        self._evicted_at[id] = now
        self._evicted_at.move_to_end(id)
        if len(self._evicted_at) > REGRET_REMEMBERED:
            self._evicted_at.popitem(last=False)

    def arrived(self, id: GenerationId, size: int, now: float) -> None:
        """A model was published; it is regretted when it went less than a day ago."""
        went = self._evicted_at.pop(id, None)
        if went is not None and now - went <= REGRET_SECONDS:
            self.refetched_bytes += size
