"""The metrics: a snapshot of the cache and the edge's own request times, as Prometheus families.

Nothing is registered anywhere: a `Collector` is made for one scrape from
figures taken at one instant.  No label has values that grow with models or
holders; routes are labelled by their template.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import inf
from typing import Final, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from weightd import __version__
from weightd.cache.records import HistogramFigures, Snapshot

PREFIX: Final = "weightd_"
LabelText = TypeVar("LabelText", bound=str)

METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
UNKNOWN: Final = "unknown"
"""The route label of a path that is none, and the method label of a method that no route takes."""

REQUEST_BOUNDS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.1,
    0.5,
    2.5,
    10.0,
    60.0,
    600.0,
    inf,
)

_GAUGES: Final = {
    "capacity_bytes": "The budget in force.",
    "used_bytes": "On disk, of the budget: resident, retired, written, parked and doomed.",
    "resident_bytes": "Current generations, each blob counted once.",
    "retired_bytes": "Replaced generations that a pin keeps.",
    "free_bytes": "Of the budget, promised to nobody.",
    "reserved_bytes": "Promised to arrivals.",
    "written_bytes": "Of those, on disk already.",
    "parked_bytes": "Of unfinished fetches, kept to go on from; the first to go for room.",
    "doomed_bytes": "Evicted and not yet given back by the filesystem.",
    "pinned_bytes": "Kept by pins, holds and use.",
    "evictable_bytes": "What eviction could free.",
    "over_budget_bytes": "By how much pins and use keep more than the budget allows.",
    "overhead_bytes": "Manifests and databases, outside the budget.",
    "models": "Keys that a lookup answers.",
    "retired_models": "Replaced generations that are still on disk.",
    "arrivals": "Puts, uploads and fetches that room is promised to.",
    "waiting": "Arrivals that wait for room: blocked at this moment.",
    "partials": "Unfinished fetches whose bytes are kept.",
    "pins": "Pins in force.",
    "holds": "Models that the kernel says are held.",
    "uses": "Models that nobody holds and some process has open or mapped.",
}


class RequestTimes:
    """How long requests took, by route, method and status, and the problems that were answered.

    Used on the loop's thread only.
    """

    def __init__(self) -> None:
        self._problems: dict[str, int] = {}
        self._counts: dict[tuple[str, str, str], list[int]] = {}
        self._sums: dict[tuple[str, str, str], float] = {}

    def declare(self, route: str, method: str, status: int) -> None:
        """Have a series present before its first request."""
        labels = (route, method, str(status))
        self._counts.setdefault(labels, [0] * len(REQUEST_BOUNDS))
        self._sums.setdefault(labels, 0.0)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        labels = (route, method, str(status))
        if labels not in self._counts:
            self.declare(route, method, status)
        self._counts[labels][bisect_left(REQUEST_BOUNDS, seconds)] += 1
        self._sums[labels] += seconds

    def declare_problem(self, code: str) -> None:
        """Have a series present before its first problem."""
        self._problems.setdefault(code, 0)

    def count_problem(self, code: str) -> None:
        """Count one answer that is a problem."""
        self._problems[code] = self._problems.get(code, 0) + 1

    def problems(self) -> Metric:
        return _counters(
            "problems", "Requests that were answered with a problem.", "code", self._problems
        )

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            PREFIX + "request_seconds",
            "From a request's headers to the last byte of its answer.",
            labels=("route", "method", "status"),
        )
        for labels, counts in self._counts.items():
            buckets = _buckets(REQUEST_BOUNDS, counts)
            family.add_metric(labels, buckets, self._sums[labels])
        return family


class SnapshotCollector(Collector):
    """Every family, from figures taken at one instant; ``now`` is in seconds since the epoch."""

    def __init__(self, snapshot: Snapshot, times: RequestTimes, now: float) -> None:
        self._snapshot = snapshot
        self._times = times
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield from self._lookups()
        yield from self._bytes()
        yield from self._evictions()
        yield from self._arrivals()
        yield from self._fetches()
        yield self._times.family()
        yield self._times.problems()
        yield from self._daemon()

    def _daemon(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield _gauge(
            "ready",
            "1 while it serves; 0 while it starts or drains.",
            int(snapshot.state == "ready"),
        )
        yield _gauge("start_time_seconds", "When it started, since the epoch.", snapshot.started_at)
        yield _gauge(
            "in_use_detection",
            "1 where the kernel tells of open and mapped files; 0 where only pins and holds count.",
            int(snapshot.leases_work),
        )
        yield _gauge(
            "foreign_names", "Names in the root that are not weightd's.", len(snapshot.foreign)
        )
        build = InfoMetricFamily(PREFIX + "build", "The version that runs.")
        build.add_metric((), {"version": __version__, "python": platform.python_version()})
        yield build

    def _lookups(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield _counters("lookups", "Wishes for a model.", "result", snapshot.lookups)
        yield _counters(
            "lookup_bytes", "Bytes of the models that lookups hit.", "result", snapshot.lookup_bytes
        )
        yield _gauge("hit_ratio", "Hits over lookups since the start.", snapshot.hit_ratio)
        acquire = HistogramMetricFamily(
            PREFIX + "acquire_seconds", "From the wish to a path.", labels=("result",)
        )
        for result, figures in snapshot.acquire_seconds.items():
            acquire.add_metric((result,), _buckets(figures.bounds, figures.counts), figures.sum)
        yield acquire

    def _bytes(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        for name, documentation in _GAUGES.items():
            yield _gauge(name, documentation, getattr(snapshot, name))
        yield from self._filesystem()
        yield from self._pins()

    def _filesystem(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield _gauge(
            "filesystem_total_bytes",
            "What can be used of the filesystem at all, as df counts.",
            snapshot.filesystem.total,
        )
        yield _gauge(
            "filesystem_free_bytes",
            "What the filesystem has left for weightd.",
            snapshot.filesystem.free,
        )
        yield _gauge("min_free_bytes", "What must stay free there.", snapshot.filesystem.min_free)
        yield _gauge(
            "others_bytes",
            "Used on the filesystem, and not weightd's.",
            snapshot.filesystem.others,
        )

    def _pins(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield _gauge(
            "oldest_pin_age_seconds",
            "Age of the oldest pin, 0 without one.",
            self._age(snapshot.oldest_pin_since),
        )
        yield _gauge(
            "oldest_idle_pin_age_seconds",
            "Age of the oldest pin, neither lease nor forever, of a model that no process holds "
            "or has open; 0 without one, and where that cannot be seen.",
            self._age(snapshot.oldest_idle_pin_since),
        )
        yield _gauge(
            "pins_known",
            "0 while the record of pins is lost and nothing is evicted.",
            int(snapshot.pins_known),
        )
        yield _counter("expired_pins", "Leases that lapsed.", snapshot.expired_pins)

    def _age(self, since: float | None) -> float:
        return 0.0 if since is None else max(0.0, self._now - since)

    def _evictions(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield _counters("evictions", "Models that went.", "reason", snapshot.evictions)
        yield _counters(
            "evicted_bytes", "Bytes of the models that went.", "reason", snapshot.evicted_bytes
        )
        yield _counter(
            "refetched_bytes",
            "Evicted, and wanted again within a day: regret.",
            snapshot.refetched_bytes,
        )
        yield _counter(
            "damaged_models", "Models whose files vanished or changed.", snapshot.damaged_models
        )

    def _arrivals(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield _counters(
            "admission_rejections",
            "Arrivals that were refused.",
            "code",
            snapshot.admission_rejections,
        )
        yield _histogram(
            "admission_wait_seconds",
            "From an arrival's request to its admission.",
            snapshot.admission_wait_seconds,
        )
        yield _counters("puts", "Puts by how they ended.", "result", snapshot.puts)
        yield _counter("put_bytes", "Bytes that puts brought.", snapshot.put_bytes)
        yield _histogram(
            "put_seconds",
            "From a put's request to its acknowledgement, of puts that published.",
            snapshot.put_seconds,
        )

    def _fetches(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        ended = CounterMetricFamily(
            PREFIX + "fetches", "Fetches by how they ended.", labels=("origin", "result")
        )
        for labels, count in snapshot.fetches.items():
            ended.add_metric(labels, count)
        yield ended
        yield _counters("fetch_bytes", "Bytes that origins sent.", "origin", snapshot.fetch_bytes)
        yield _histogram(
            "fetch_seconds",
            "From a fetch's start to its end, of those that brought a model or found it here.",
            snapshot.fetch_seconds,
        )
        yield _gauge("fetches_in_flight", "Fetches under way.", snapshot.fetches_in_flight)
        yield _counter(
            "fetch_joined", "Wishes that joined a fetch under way.", snapshot.fetch_joined
        )


def render(collector: Collector, accept: str) -> tuple[bytes, str]:
    """The exposition that ``accept`` asks for, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(collector), content_type


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, documentation, value=value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, documentation, value=value)


def _counters(name: str, documentation: str, label: str, values: Mapping[LabelText, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, documentation, labels=(label,))
    for value_of_label, value in values.items():
        family.add_metric((value_of_label,), value)
    return family


def _histogram(name: str, documentation: str, figures: HistogramFigures) -> Metric:
    return HistogramMetricFamily(
        PREFIX + name,
        documentation,
        buckets=_buckets(figures.bounds, figures.counts),
        sum_value=figures.sum,
    )


def _buckets(
    bounds: tuple[float, ...], counts: tuple[int, ...] | list[int]
) -> list[tuple[str, float]]:
    """Counts per bucket as Prometheus wants them: cumulated, each under its upper bound."""
    names = ("+Inf" if bound == inf else repr(bound) for bound in bounds)
    return [(name, float(total)) for name, total in zip(names, accumulate(counts), strict=True)]
