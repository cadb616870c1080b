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
from weightd.cache.overview import ArrivalView, ModelView, Order, Overview, Wanted
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
from weightd.cache.refusals import Refusal
from weightd.cache.uploads import Owner
from weightd.store import Announced, Offered

__all__ = [
    "ENDED",
    "EVENT_TYPES",
    "FETCH_RESULTS",
    "Announced",
    "ArrivalView",
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
    "ModelView",
    "Offered",
    "Options",
    "Order",
    "Origination",
    "Overview",
    "Owner",
    "PinOutcome",
    "PinView",
    "PutOutcome",
    "PutTerms",
    "Record",
    "Refusal",
    "Snapshot",
    "Source",
    "State",
    "SteadyClock",
    "UploadView",
    "Verdict",
    "Victim",
    "Wanted",
    "WeightCache",
    "Wish",
]
