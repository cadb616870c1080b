"""What answers carry."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from weightd.wire.fields import KEY_SCHEMA, SHA256_PATTERN

Size = Annotated[int, Field(ge=0, description="In bytes.")]
Count = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern=SHA256_PATTERN)]
Named = Annotated[str, WithJsonSchema(KEY_SCHEMA)]

_DIGEST = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
_LISTED: dict[str, object] = {
    "key": "meta-llama/Llama-3.1-70B",
    "generation": _DIGEST,
    "current": True,
    "path": "/var/cache/weightd/models/meta-llama+Llama-3.1-70B.2c26b46b68ffc68f/Llama-3.1-70B",
    "relative_path": "models/meta-llama+Llama-3.1-70B.2c26b46b68ffc68f/Llama-3.1-70B",
    "file": None,
    "bytes": 140_000_000_000,
    "digest": _DIGEST,
    "source": None,
    "revision": None,
    "pins": 1,
    "held": False,
    "published_at": "2026-03-01T12:00:00.000Z",
    "last_used_at": "2026-03-02T08:30:00.000Z",
    "hits": 17,
}
_FILES: dict[str, object] = {
    "files": [
        {"path": "config.json", "bytes": 855, "sha256": _DIGEST},
        {"path": "model.safetensors", "bytes": 139_999_999_145, "sha256": _DIGEST},
    ]
}
_HOLDER: dict[str, object] = {
    "holder": "vllm-7f9c:1",
    "key": "meta-llama/Llama-3.1-70B",
    "bytes": 140_000_000_000,
    "since": "2026-03-01T12:05:00.000Z",
    "until": None,
}


class FileShape(BaseModel):
    path: str
    bytes: Size
    sha256: Hash


class ListedModel(BaseModel, json_schema_extra={"examples": [_LISTED]}):
    """A generation, without its files."""

    key: Named
    generation: Hash
    current: bool = Field(description="False once another generation of the key was published.")
    path: str = Field(description="The directory to read the model from.")
    relative_path: str = Field(description="The same below the root, for other mounts of it.")
    file: str | None = Field(description="The one file's full path, or null when there are more.")
    bytes: Size
    digest: Hash
    source: str | None
    revision: str | None
    pins: Count
    held: bool = Field(description="Whether the kernel says that its directory is held.")
    published_at: datetime
    last_used_at: datetime
    hits: Count


class ModelRecord(ListedModel, json_schema_extra={"examples": [_LISTED | _FILES]}):
    """A generation and its files."""

    files: list[FileShape]


class PinnedRecord(
    ModelRecord,
    json_schema_extra={
        "examples": [
            _LISTED | _FILES | {"holder": "vllm-7f9c:1", "since": _HOLDER["since"], "until": None}
        ]
    },
):
    """The pinned generation, and the pin on it."""

    holder: str
    since: datetime
    until: datetime | None = Field(description="When the pin lapses unless it is renewed.")


class ModelList(BaseModel, json_schema_extra={"examples": [{"models": [_LISTED], "next": None}]}):
    models: list[ListedModel]
    next: str | None = Field(description="What to give as `after` for the next page.")


class HolderShape(BaseModel, json_schema_extra={"examples": [_HOLDER]}):
    """Who keeps how much of what."""

    holder: str
    key: str
    bytes: Size
    since: datetime | None
    until: datetime | None


class PinShape(
    BaseModel,
    json_schema_extra={
        "examples": [
            _HOLDER
            | {"kind": "pin", "generation": _DIGEST, "current": True, "ttl": None, "forever": False}
            | {"uid": None, "pid": None, "process": None}
        ]
    },
):
    """A pin, a hold that the kernel keeps, or a use that it reports."""

    kind: Literal["pin", "hold", "use"]
    holder: str | None = Field(description="Who pins; null for a hold or a use.")
    key: Named
    generation: Hash
    current: bool
    bytes: Size
    since: datetime
    until: datetime | None
    ttl: float | None = Field(description="The length of the lease, in seconds.")
    forever: bool
    uid: int | None = Field(description="Who took it at the replica door; null for all others.")
    pid: int | None = Field(description="A process behind a hold or use, where it can be seen.")
    process: str | None = Field(description="The name of that process.")


class PinList(BaseModel):
    pins: list[PinShape]
    swept_at: datetime | None = Field(
        description="When the last complete look for holds and uses began."
    )


class VictimShape(BaseModel):
    key: Named
    generation: Hash
    bytes: Size
    last_used_at: datetime


class AdmissionVerdict(
    BaseModel,
    json_schema_extra={
        "examples": [
            {
                "verdict": "evicts",
                "bytes": 145_000_000_000,
                "capacity": 300_000_000_000,
                "free": 70_000_000_000,
                "evictable": 90_000_000_000,
                "pinned": 140_000_000_000,
                "arriving": 0,
                "filesystem_free": 400_000_000_000,
                "min_free": 20_000_000_000,
                "victims": [
                    {
                        "key": "mistralai/Mixtral-8x7B",
                        "generation": _DIGEST,
                        "bytes": 90_000_000_000,
                        "last_used_at": "2026-03-01T12:00:00.000Z",
                    }
                ],
                "holders": [],
                "reason": None,
                "probed": ["budget", "pins", "filesystem"],
            }
        ]
    },
):
    """What would become of an arrival, and the figures that decide it."""

    verdict: Literal["fits", "evicts", "too-large", "blocked", "disk-full"]
    bytes: Size
    capacity: Size
    free: Size
    evictable: Size
    pinned: Size
    arriving: Size
    filesystem_free: Size
    min_free: Size
    victims: list[VictimShape]
    holders: list[HolderShape]
    reason: Literal["pins", "arriving", "pins-unknown"] | None
    probed: list[str] = Field(description="What was asked in order to decide.")


class EvictionShape(BaseModel):
    sequence: Count
    key: Named
    generation: str = Field(
        pattern="^[0-9a-f]{16}([0-9a-f]{48})?$",
        description="Of one whose manifest was damaged only the digest's start is known.",
    )
    bytes: Size
    reason: Literal["admission", "budget", "disk", "request", "damage"]
    at: datetime
    idle_seconds: float = Field(ge=0, description="How long it had gone unused.")
    beneficiary: str | None = Field(description="The key whose arrival needed the room.")


class EvictionList(BaseModel):
    evictions: list[EvictionShape]
    next: int | None = Field(description="What to give as `after` for the next page.")


_JOB: dict[str, object] = {
    "id": "5f0c9a1e7b3d2846",
    "key": "meta-llama/Llama-3.1-70B",
    "state": "downloading",
    "source": "hf://meta-llama/Llama-3.1-70B",
    "sources": ["hf://meta-llama/Llama-3.1-70B"],
    "revision": "1d54af340dc8906a2d21146191a9c184c35e47bd",
    "bytes_done": 84_000_000_000,
    "bytes_total": 140_000_000_000,
    "bytes_reused": 0,
    "rate": 1_000_000_000.0,
    "eta": 56.0,
    "callers": 1,
    "attempts": 0,
    "created_at": "2026-03-01T12:00:00.000Z",
    "started_at": "2026-03-01T12:00:00.010Z",
    "ended_at": None,
    "retry_at": None,
    "problem": None,
    "record": None,
}


class FetchShape(BaseModel, json_schema_extra={"examples": [_JOB]}):
    """One fetch: a job that brings a model here, for everybody who asks for it."""

    id: str
    key: Named
    state: Literal[
        "queued",
        "listing",
        "waiting",
        "downloading",
        "publishing",
        "done",
        "failed",
        "cancelled",
    ] = Field(description="`waiting` is for room; the last three are ends.")
    source: str = Field(description="The one in use, or tried last, without credentials.")
    sources: list[str]
    revision: str | None = Field(description="What the source resolved to.")
    bytes_done: Size
    bytes_total: int | None = Field(ge=0, description="Null before the source was listed.")
    bytes_reused: Size = Field(description="Of those done, what was here before.")
    rate: float = Field(ge=0, description="Bytes a second, of the last seconds.")
    eta: float | None = Field(ge=0, description="Seconds to go at that rate.")
    callers: Count = Field(description="How many wait for it.")
    attempts: Count = Field(description="Failures of the origin one after another.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    retry_at: datetime | None = Field(description="Before this the origin is not asked again.")
    problem: dict[str, object] | None = Field(description="The problem document it ended with.")
    record: ListedModel | None = Field(description="The model as it came.")


class FetchList(BaseModel, json_schema_extra={"examples": [{"fetches": [_JOB]}]}):
    fetches: list[FetchShape]


_UPLOAD = {
    "id": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "key": "org/my-model@v1",
    "path": "/var/cache/weightd/incoming/0f1e2d3c4b5a69788796a5b4c3d2e1f0/my-model",
    "relative_path": "incoming/0f1e2d3c4b5a69788796a5b4c3d2e1f0/my-model",
    "bytes": 140_000_000_000,
    "written": 0,
    "created_at": "2026-03-01T12:00:00.000Z",
    "expires_at": "2026-03-01T13:00:00.000Z",
}


class WarmShape(BaseModel, json_schema_extra={"examples": [{"bytes": 140, "cached": 140}]}):
    """How much of a model is in the page cache."""

    bytes: Size
    cached: Size


class UploadShape(BaseModel, json_schema_extra={"examples": [_UPLOAD]}):
    """A directory that its writer fills himself, with room promised for what he announced."""

    id: str
    key: Named
    path: str = Field(description="The directory to write the files in.")
    relative_path: str = Field(description="The same, below the root.")
    bytes: Size = Field(description="What was announced.")
    written: Size = Field(description="Bytes of blocks that were seen in it, a moment ago.")
    created_at: datetime
    expires_at: datetime = Field(description="When it ends unless it grows.")


class UploadList(BaseModel, json_schema_extra={"examples": [{"uploads": [_UPLOAD]}]}):
    uploads: list[UploadShape]


class EventShape(BaseModel, json_schema_extra={"examples": [{"type": "heartbeat"}]}):
    """One line of the stream; more fields come with the type."""

    type: str
    seq: int | None = None
    at: datetime | None = None


class FetchEventShape(EventShape, json_schema_extra={"examples": [{"type": "heartbeat"}]}):
    """One line of a fetch's stream: `progress`, and at last `end` with the outcome."""

    outcome: Literal["done", "failed", "cancelled", "draining"] | None = None
    job: FetchShape | None = None


_WARMING: dict[str, object] = {
    "key": "meta-llama/Llama-3.1-70B",
    "state": "ended",
    "bytes_done": 140_000_000_000,
    "bytes_total": 140_000_000_000,
    "rate": 6_000_000_000.0,
    "eta": None,
    "cached": 140_000_000_000,
    "problem": None,
}

_VERIFICATION: dict[str, object] = {
    "key": "meta-llama/Llama-3.1-70B",
    "generation": _DIGEST,
    "state": "ended",
    "bytes_done": 140_000_000_000,
    "bytes_total": 140_000_000_000,
    "file": "model.safetensors",
    "rate": 1_000_000_000.0,
    "eta": None,
    "damaged": [
        {
            "path": "model.safetensors",
            "problem": "digest-mismatch",
            "reason": "model.safetensors is not what was published",
            "expected": _DIGEST,
            "actual": "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9",
        }
    ],
    "shared": [],
    "kept": True,
    "problem": None,
}


class FlawShape(BaseModel):
    """What is wrong with a file."""

    path: str | None = Field(description="Null when it is what stands around the files.")
    problem: Literal["missing", "changed", "digest-mismatch", "io-error"] = Field(
        description="`changed` is another size, kind or time of writing; `io-error` is unreadable."
    )
    reason: str
    expected: Hash | None = Field(description="The sha256 that was published.")
    actual: Hash | None = Field(description="That of what is there, where it was read to its end.")


class VerificationShape(BaseModel, json_schema_extra={"examples": [_VERIFICATION]}):
    """How far a model was read, and what was found."""

    key: Named
    generation: Hash
    state: Literal["queued", "reading", "ended"]
    bytes_done: Size
    bytes_total: Size
    file: str | None = Field(description="The one that is read, or was last.")
    rate: float = Field(ge=0, description="Bytes a second.")
    eta: float | None = Field(ge=0, description="Seconds to go at that rate.")
    damaged: list[FlawShape] = Field(description="Empty before the end.")
    shared: list[Named] = Field(
        description="Other models that have a damaged file in common with it, set aside with it."
    )
    kept: bool = Field(description="It is damaged, and on the disk for those who rely on it.")
    problem: dict[str, object] | None = Field(description="Why it could not be read to the end.")


class VerifyEventShape(EventShape, json_schema_extra={"examples": [{"type": "heartbeat"}]}):
    """One line of a verification: `progress`, and at last `end` with the outcome."""

    outcome: Literal["whole", "damaged", "gone", "failed", "draining"] | None = None
    verification: VerificationShape | None = None


class WarmingShape(BaseModel, json_schema_extra={"examples": [_WARMING]}):
    """How far a model was read into the page cache, and at the end how much of it is there."""

    key: Named
    state: Literal["queued", "reading", "ended"]
    bytes_done: Size
    bytes_total: Size
    rate: float = Field(ge=0, description="Bytes a second.")
    eta: float | None = Field(ge=0, description="Seconds to go at that rate.")
    cached: Size | None = Field(description="Of `bytes_total`, in memory at the end.")
    problem: dict[str, object] | None = Field(description="Why it could not be read to the end.")


class WarmEventShape(EventShape, json_schema_extra={"examples": [{"type": "heartbeat"}]}):
    """One line of a warming: `progress`, and at last `end` with the outcome."""

    outcome: Literal["warm", "failed", "draining"] | None = None
    warming: WarmingShape | None = None


class InUseDetection(BaseModel):
    """What the kernel can tell on this filesystem."""

    leases: bool = Field(description="Whether open and mapped files are seen without a pin.")
    holds: bool = Field(description="Whether `flock` on a model's directory is seen.")


class StatusShape(BaseModel):
    """The budget and its parts, as the metrics of the same names give them."""

    state: Literal["starting", "ready", "draining"]
    version: str
    root: str
    started_at: datetime
    capacity_bytes: Size
    used_bytes: Size = Field(description="On disk: resident, retired, written, parked and doomed.")
    resident_bytes: Size
    retired_bytes: Size
    reserved_bytes: Size
    written_bytes: Size
    doomed_bytes: Size
    pinned_bytes: Size
    evictable_bytes: Size
    free_bytes: Size
    over_budget_bytes: Size
    overhead_bytes: Size
    filesystem_total_bytes: Size
    filesystem_free_bytes: Size
    min_free_bytes: Size
    others_bytes: Size
    models: Count
    retired_models: Count
    arrivals: Count
    waiting: Count
    partials: Count = Field(description="Unfinished fetches whose bytes are kept.")
    parked_bytes: Size = Field(description="What those occupy; the first to go for room.")
    fetches_in_flight: Count
    pins: Count
    holds: Count
    uses: Count
    oldest_pin_since: datetime | None
    pins_known: bool = Field(description="False while the record of pins is lost.")
    evictions: Count
    evicted_bytes: Size
    hits: Count
    misses: Count
    hit_ratio: float = Field(ge=0, le=1)
    damaged_models: Count
    expired_pins: Count
    in_use_detection: InUseDetection
    foreign: list[str] = Field(description="Names in the root that are not weightd's.")


class HealthShape(BaseModel, json_schema_extra={"examples": [{"status": "ok", "state": "ready"}]}):
    status: Literal["ok"]
    state: Literal["starting", "ready", "draining"]
