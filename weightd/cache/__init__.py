"""put, get, pin, unpin, delete: the one place where ledger and store meet."""

from weightd.cache.cache import WeightCache
from weightd.cache.clock import Clock, SteadyClock
from weightd.cache.context import Options
from weightd.cache.records import (
    EVENT_TYPES,
    Body,
    Contents,
    Event,
    FilesystemFigures,
    HistogramFigures,
    PinOutcome,
    PinView,
    PutOutcome,
    PutTerms,
    Record,
    Snapshot,
    Source,
    State,
    Verdict,
    Victim,
)

__all__ = [
    "EVENT_TYPES",
    "Body",
    "Clock",
    "Contents",
    "Event",
    "FilesystemFigures",
    "HistogramFigures",
    "Options",
    "PinOutcome",
    "PinView",
    "PutOutcome",
    "PutTerms",
    "Record",
    "Snapshot",
    "Source",
    "State",
    "SteadyClock",
    "Verdict",
    "Victim",
    "WeightCache",
]
