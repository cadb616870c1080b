"""What a fetch is asked for, and how it is seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from weightd.cache.records import Record
from weightd.errors import WeightdError
from weightd.model import Digest, Key

FetchState: TypeAlias = Literal[
    "queued", "listing", "waiting", "downloading", "publishing", "done", "failed", "cancelled"
]

ENDED: Final[frozenset[FetchState]] = frozenset({"done", "failed", "cancelled"})

FetchResult: TypeAlias = Literal["fetched", "same", "failed", "cancelled"]

FETCH_RESULTS: Final[tuple[FetchResult, ...]] = ("fetched", "same", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """What a caller wants of a fetch.

    ``sources`` are references, tried in order.  ``digest`` is the content that
    the caller insists on.  With ``holder`` it ends pinned, for ``ttl`` seconds
    or, with neither that nor ``forever``, for `Options.fetch_ttl`.
    ``revalidate`` asks the origin although the key is here.  ``credential``
    names an entry of the settings.  ``wait`` is how long the caller stays, and
    how long the job may wait for room for it, in seconds.  ``uid`` is the user
    whom the kernel saw ask at the replica door.
    """

    sources: tuple[str, ...]
    digest: Digest | None = None
    holder: str | None = None
    ttl: float | None = None
    forever: bool = False
    revalidate: bool = False
    credential: str | None = None
    wait: float = 0.0
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class FetchView:
    """One job as it is seen; sizes in bytes, times in seconds since the epoch.

    ``source`` is the reference in use, or the last one tried.  Of
    ``bytes_total`` (None before it is listed) ``bytes_done`` are here, of which
    ``bytes_reused`` were here before and not asked for.  ``rate`` is in bytes a
    second over the last seconds, ``eta`` in seconds.  ``retry_at`` is when the
    origin may be asked again after a failure.
    """

    id: str
    key: Key
    sources: tuple[str, ...]
    source: str
    state: FetchState
    bytes_done: int
    bytes_total: int | None
    bytes_reused: int
    rate: float
    eta: float | None
    callers: int
    attempts: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    retry_at: float | None
    revision: str | None
    error: WeightdError | None
    record: Record | None


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """``record`` once the model is here; before that ``job`` alone."""

    record: Record | None
    job: FetchView | None


@dataclass(frozen=True, slots=True)
class Wish:
    """A model that the settings want here: fetched when nothing else is to be done.

    ``keep`` is ``forever`` (pinned while it is wished), how many seconds it
    stays pinned after its last use, or None for no pin at all.  ``credential``
    and ``digest`` are as in `FetchTerms`; other content is not what is wished.
    """

    key: Key
    sources: tuple[str, ...]
    keep: float | Literal["forever"] | None = None
    credential: str | None = None
    digest: Digest | None = None
