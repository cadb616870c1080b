"""What the cache says of itself: the answers that its callers turn into words.

All sizes are bytes, all times seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

from weightd.errors import BlockedReason, HolderFigures, WeightdError
from weightd.model import Digest, FileEntry, GenerationId, Key, Manifest, Pin
from weightd.origins.contract import OriginKind
from weightd.store import Flaw

State = Literal["starting", "ready", "draining"]


class Source(Protocol):
    """Bytes that arrive, read by one worker thread."""

    def readinto(self, buffer: memoryview) -> int:
        """Wait for bytes, put them at the start of ``buffer``, say how many; 0 is the end.

        Raises the `WeightdError` that ended the flow (Stalled, IncompleteBody, …).
        """
        ...


class Body(Protocol):
    """A flow of bytes that has not begun.

    Entering begins it, so a refusal made before that costs the peer nothing.
    Leaving always ends it and unblocks a thread that still waits in ``readinto``.
    """

    async def __aenter__(self) -> Source: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Record:
    """One generation as a lookup answers it.

    ``path`` is the directory handed out; ``relative_path`` the same below the
    root, for a replica that mounts the root elsewhere.
    """

    manifest: Manifest
    current: bool
    path: Path
    relative_path: str
    pins: int
    held: bool
    last_used_at: float
    hits: int


@dataclass(frozen=True, slots=True)
class PutTerms:
    """What a put declares about the bytes to come.

    ``length`` is the exact length of the body, ``most`` its greatest; with
    neither, it may grow into free bytes only.  ``file`` names a single file
    (None: the key's last segment); ``archive`` says that the body is a tar
    stream.  ``wait`` is how long, in seconds, to wait while blocked.
    """

    length: int | None = None
    most: int | None = None
    archive: bool = False
    file: str | None = None
    sha256: Digest | None = None
    create_only: bool = False
    unless_digest: Digest | None = None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class PutOutcome:
    """``created`` is False when the same content was here already."""

    record: Record
    created: bool


@dataclass(frozen=True, slots=True)
class UploadView:
    """An upload under way; ``path`` is the directory to fill, ``written`` what was seen in it."""

    id: str
    key: Key
    path: Path
    relative_path: str
    bytes: int
    written: int
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class VerifyView:
    """A reading of a model as it stands, or as it ended with ``flaws`` or by ``error``.

    ``file`` is the one that is read, ``rate`` in bytes a second, ``eta`` in seconds.
    ``shared`` are the models that had a damaged file in common with it, and went with it;
    ``kept`` says that it is damaged and stays on the disk, for those who have it.
    """

    generation: GenerationId
    state: Literal["queued", "reading", "ended"]
    bytes_done: int
    bytes_total: int
    file: str | None
    rate: float
    eta: float | None
    flaws: tuple[Flaw, ...] = ()
    shared: tuple[Key, ...] = ()
    kept: bool = False
    error: WeightdError | None = None


@dataclass(frozen=True, slots=True)
class WarmView:
    """A reading into the page cache as it stands, or as it ended, with ``cached`` or ``error``.

    ``rate`` in bytes a second, ``eta`` in seconds; ``cached`` of ``bytes_total`` were in memory
    at the end.
    """

    key: Key
    state: Literal["queued", "reading", "ended"]
    bytes_done: int
    bytes_total: int
    rate: float
    eta: float | None
    cached: int | None = None
    error: WeightdError | None = None


@dataclass(frozen=True, slots=True)
class PinOutcome:
    """``created`` is False when the holder had the pin already and renewed it."""

    record: Record
    pin: Pin
    created: bool


@dataclass(frozen=True, slots=True)
class PinView:
    """One pin, hold or use as it is seen; ``current`` is False for a retired generation.

    A pin has a ``holder``, and a ``uid`` when it was taken at the replica door; a hold or use has
    a process, where it can be seen.
    ``since`` of these is when it was first seen.
    """

    kind: Literal["pin", "hold", "use"]
    generation: GenerationId
    current: bool
    bytes: int
    since: float
    holder: str | None = None
    until: float | None = None
    ttl: float | None = None
    forever: bool = False
    uid: int | None = None
    pid: int | None = None
    process: str | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A generation that an admission would evict."""

    key: Key
    digest: Digest
    bytes: int
    last_used_at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would become of an arrival of ``bytes`` bytes, decided without doing it.

    ``probed`` lists what was asked to decide: the ledger, the filesystem.
    """

    verdict: Literal["fits", "evicts", "too-large", "blocked", "disk-full"]
    bytes: int
    capacity: int
    free: int
    evictable: int
    pinned: int
    arriving: int
    filesystem_free: int
    min_free: int
    victims: tuple[Victim, ...] = ()
    holders: tuple[HolderFigures, ...] = ()
    reason: BlockedReason | None = None
    probed: tuple[str, ...] = ("budget", "pins", "filesystem")


@dataclass(frozen=True, slots=True)
class Contents:
    """One published file, open for reading; the model stays while it is."""

    record: Record
    entry: FileEntry
    descriptor: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.  ``type`` is one of `EVENT_TYPES`."""

    seq: int
    type: str
    at: float
    data: dict[str, object]


EVENT_TYPES = (
    "published",
    "replaced",
    "retired",
    "evicted",
    "pinned",
    "unpinned",
    "expired",
    "refused",
    "damaged",
    "fetching",
    "fetched",
    "fetch-failed",
    "fetch-cancelled",
    "lost",
    "end",
)


@dataclass(frozen=True, slots=True)
class FilesystemFigures:
    """``total`` is what can be used at all, ``others`` what is used and is not weightd's."""

    total: int
    free: int
    min_free: int
    others: int


@dataclass(frozen=True, slots=True)
class HistogramFigures:
    """How many observations fell under each upper bound and over the one before, in seconds.

    The last bound is infinite.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every figure for status and metrics, taken at one instant.

    The byte figures are those of the metrics of the same name.  The mappings
    have every possible label present from the start.

    ``oldest_idle_pin_since`` is that of the pins that only their taking back ends, neither a
    lease nor forever, on what no process was seen to hold or to have open.  It is None where
    such use is not seen, or was not looked for yet.
    """

    state: State
    root: Path
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
    filesystem: FilesystemFigures
    models: int
    retired_models: int
    arrivals: int
    waiting: int
    pins: int
    holds: int
    uses: int
    oldest_pin_since: float | None
    oldest_idle_pin_since: float | None
    pins_known: bool
    leases_work: bool
    lookups: dict[Literal["hit", "miss"], int]
    lookup_bytes: dict[Literal["hit", "miss"], int]
    evictions: dict[str, int]
    evicted_bytes: dict[str, int]
    admission_rejections: dict[str, int]
    puts: dict[str, int]
    put_bytes: int
    refetched_bytes: int
    damaged_models: int
    expired_pins: int
    foreign: tuple[str, ...]
    acquire_seconds: dict[str, HistogramFigures]
    admission_wait_seconds: HistogramFigures
    put_seconds: HistogramFigures
    partials: int
    parked_bytes: int
    fetches: dict[tuple[OriginKind, str], int]
    fetch_bytes: dict[OriginKind, int]
    fetch_seconds: HistogramFigures
    fetches_in_flight: int
    fetch_joined: int

    @property
    def hit_ratio(self) -> float:
        """Hits over lookups, 0 before the first lookup."""
        total = self.lookups["hit"] + self.lookups["miss"]
        return self.lookups["hit"] / total if total else 0.0
