"""put, get, pin, unpin, delete: the one place where ledger and store meet."""

from weightd.cache.cache import WeightCache
from weightd.cache.clock import Clock, SteadyClock
from weightd.cache.context import Options
from weightd.cache.fetching.terms import (
    ENDED,
    FETCH_RESULTS,
    FetchOutcome,
    FetchState,
    FetchTerms,
    FetchView,
    Wish,
)
from weightd.cache.publishing import Origination
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
    UploadView,
    Verdict,
    Victim,
)
from weightd.cache.uploads import Owner
from weightd.store import Announced, Offered

__all__ = [
    "ENDED",
    "EVENT_TYPES",
    "FETCH_RESULTS",
    "Announced",
    "Body",
    "Clock",
    "Contents",
    "Event",
    "FetchOutcome",
    "FetchState",
    "FetchTerms",
    "FetchView",
    "FilesystemFigures",
    "HistogramFigures",
    "Offered",
    "Options",
    "Origination",
    "Owner",
    "PinOutcome",
    "PinView",
    "PutOutcome",
    "PutTerms",
    "Record",
    "Snapshot",
    "Source",
    "State",
    "SteadyClock",
    "UploadView",
    "Verdict",
    "Victim",
    "WeightCache",
    "Wish",
]
