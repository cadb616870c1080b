"""What the daemon answers, with types.

Sizes are in bytes, times in seconds since the epoch.  Fields that a newer
daemon says and this does not know are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, cast

from weightd.client.times import epoch_or_none

Document = Mapping[str, Any]

_TIMES: Final = frozenset(
    {
        "at",
        "created_at",
        "ended_at",
        "last_used_at",
        "oldest_pin_since",
        "published_at",
        "retry_at",
        "since",
        "started_at",
        "until",
    }
)


class ModelFile(NamedTuple):
    """A file of a model: its path below the model's directory."""

    path: str
    bytes: int
    sha256: str


class Model(NamedTuple):
    """One generation of a key.

    ``path`` is the directory as it is called here, after `WEIGHTD_ROOT`;
    ``relative_path`` is below the root, and ``file`` the full path of the only
    file, None when there are more.  ``files`` is empty in lists.
    """

    key: str
    generation: str
    current: bool
    path: str
    relative_path: str
    file: str | None
    bytes: int
    digest: str
    source: str | None
    revision: str | None
    pins: int
    held: bool
    published_at: float
    last_used_at: float
    hits: int
    files: tuple[ModelFile, ...] = ()


class Pinned(NamedTuple):
    """A model and the pin on it; ``until`` is when it lapses unless it is renewed."""

    model: Model
    holder: str
    since: float
    until: float | None


class Pin(NamedTuple):
    """A pin, a hold that the kernel keeps, or a use that it reports.

    A pin has a ``holder``; a hold or use a process, where one can be seen.
    ``ttl`` is the length of a lease in seconds.
    """

    kind: Literal["pin", "hold", "use"]
    holder: str | None
    key: str
    generation: str
    current: bool
    bytes: int
    since: float
    until: float | None
    ttl: float | None
    forever: bool
    uid: int | None
    pid: int | None
    process: str | None


class Job(NamedTuple):
    """A fetch on its way, or as it ended; ``rate`` in bytes a second, ``eta`` in seconds."""

    id: str
    key: str
    state: Literal[
        "queued", "listing", "waiting", "downloading", "publishing", "done", "failed", "cancelled"
    ]
    source: str
    sources: tuple[str, ...]
    revision: str | None
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

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


class Victim(NamedTuple):
    """A generation that an arrival would evict."""

    key: str
    generation: str
    bytes: int
    last_used_at: float


class Holder(NamedTuple):
    """Who keeps how much of what."""

    holder: str
    key: str
    bytes: int
    since: float | None
    until: float | None


class Warmed(NamedTuple):
    """Of a model's ``bytes``, so many were in the page cache at the end."""

    bytes: int
    cached: int


class Warming(NamedTuple):
    """How far a model was read into the page cache; at the end so much of it was ``cached``.

    ``rate`` in bytes a second, ``eta`` in seconds.
    """

    key: str
    state: Literal["queued", "reading", "ended"]
    bytes_done: int
    bytes_total: int
    rate: float
    eta: float | None
    cached: int | None


class Verdict(NamedTuple):
    """What would become of an arrival of ``bytes``, and the figures that decide it."""

    verdict: Literal["fits", "evicts", "too-large", "blocked", "disk-full"]
    bytes: int
    capacity: int
    free: int
    evictable: int
    pinned: int
    arriving: int
    filesystem_free: int
    min_free: int
    victims: tuple[Victim, ...]
    holders: tuple[Holder, ...]
    reason: str | None
    probed: tuple[str, ...]


class Eviction(NamedTuple):
    """A line of the journal: what went, when, why, for whom, idle for how many seconds."""

    sequence: int
    key: str
    generation: str
    bytes: int
    reason: Literal["admission", "budget", "disk", "request", "damage"]
    at: float
    idle_seconds: float
    beneficiary: str | None


class Flaw(NamedTuple):
    """What is wrong with a file; ``path`` is None when it is what stands around the files.

    ``changed`` is another size, kind or time of writing.  ``actual`` is the sha256
    of what is there, where it was read to its end.
    """

    path: str | None
    problem: Literal["missing", "changed", "digest-mismatch", "io-error"]
    reason: str
    expected: str | None
    actual: str | None


class Verification(NamedTuple):
    """How far a model was read, and what is ``damaged`` of it; it is whole when nothing is.

    ``rate`` in bytes a second, ``eta`` in seconds.  ``shared`` are other models that have a
    damaged file in common with it, and were set aside with it; ``kept`` says that it is
    damaged, and on the disk for those who rely on it.
    """

    key: str
    generation: str
    state: Literal["queued", "reading", "ended"]
    bytes_done: int
    bytes_total: int
    file: str | None
    rate: float
    eta: float | None
    damaged: tuple[Flaw, ...]
    shared: tuple[str, ...]
    kept: bool


class Happening(NamedTuple):
    """A line of the stream of events; ``data`` is all that came with its type."""

    seq: int
    type: str
    at: float
    data: Document


class Status(NamedTuple):
    """The budget and its parts, as the metrics of the same names give them."""

    state: Literal["starting", "ready", "draining"]
    version: str
    root: str
    started_at: float
    capacity_bytes: int
    used_bytes: int
    resident_bytes: int
    retired_bytes: int
    reserved_bytes: int
    written_bytes: int
    doomed_bytes: int
    pinned_bytes: int
    evictable_bytes: int
    free_bytes: int
    over_budget_bytes: int
    overhead_bytes: int
    filesystem_total_bytes: int
    filesystem_free_bytes: int
    min_free_bytes: int
    others_bytes: int
    models: int
    retired_models: int
    arrivals: int
    waiting: int
    partials: int
    parked_bytes: int
    fetches_in_flight: int
    pins: int
    holds: int
    uses: int
    oldest_pin_since: float | None
    pins_known: bool
    evictions: int
    evicted_bytes: int
    hits: int
    misses: int
    hit_ratio: float
    damaged_models: int
    expired_pins: int
    in_use_detection: Document
    foreign: tuple[str, ...]


class _Shape(Protocol):
    _fields: tuple[str, ...]


S = TypeVar("S")

_LISTS: Final[Mapping[str, Any]] = {
    "damaged": Flaw,
    "files": ModelFile,
    "victims": Victim,
    "holders": Holder,
}


def read(shape: type[S], told: Document) -> S:
    """Make a record of what the daemon told.  Raises KeyError when it told too little."""
    names = cast(_Shape, shape)._fields
    defaults: Mapping[str, Any] = cast(Any, shape)._field_defaults
    known = {
        name: _value(name, told[name] if name not in defaults else told.get(name, defaults[name]))
        for name in names
    }
    return shape(**known)


def _value(name: str, value: Any) -> Any:
    if name in _TIMES:
        return epoch_or_none(value)
    if isinstance(value, list | tuple):
        shape = _LISTS.get(name)
        return tuple(value if shape is None else (read(shape, one) for one in value))
    return value


def read_pinned(told: Document) -> Pinned:
    """The answer to a pin."""
    return Pinned(
        model=read(Model, told),
        holder=told["holder"],
        since=epoch_or_none(told["since"]) or 0.0,
        until=epoch_or_none(told["until"]),
    )


def read_happening(told: Document) -> Happening:
    """A line of a stream that is no heartbeat."""
    return Happening(told["seq"], told["type"], epoch_or_none(told["at"]) or 0.0, told)
