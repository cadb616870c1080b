"""The error codes, and what each carries besides the members every problem has (RFC 9457)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from weightd.wire.answers import HolderShape, Size

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:weightd:problem:"


class Problem(BaseModel):
    """What every problem document has; ``detail`` says what to do next."""

    title_text: ClassVar[str]

    type: str = Field(pattern=f"^{TYPE_PREFIX}")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    code: str
    retryable: bool = Field(description="Whether the same request can succeed later.")


class Fault(BaseModel):
    what: str = Field(description="The parameter, header or field at fault.")
    reason: str


class InvalidKeyProblem(Problem):
    title_text: ClassVar[str] = "The key is not well formed"
    code: Literal["invalid-key"]
    key: str
    reason: str


class InvalidRequestProblem(Problem):
    """Every fault of the request that could be told, in one answer."""

    title_text: ClassVar[str] = "The request is not well formed"
    code: Literal["invalid-request"]
    what: str | None = None
    reason: str | None = None
    faults: list[Fault] | None = None


class InvalidArchiveProblem(Problem):
    title_text: ClassVar[str] = "The archive was refused"
    code: Literal["invalid-archive"]
    member: str | None
    reason: str


class ForbiddenProblem(Problem):
    title_text: ClassVar[str] = "This door does not answer that"
    code: Literal["forbidden"]
    reason: str
    door: str = Field(description="The door that would answer.")


class UnauthorizedProblem(Problem):
    title_text: ClassVar[str] = "This door asks for a token"
    code: Literal["unauthorized"]
    reason: str
    door: str = Field(description="The door that asks for none.")


class NotFoundProblem(Problem):
    title_text: ClassVar[str] = "There is no such route"
    code: Literal["not-found"]
    path: str


class NotResidentProblem(Problem):
    title_text: ClassVar[str] = "The model is not on this node"
    code: Literal["not-resident"]
    key: str


class NotPinnedProblem(Problem):
    title_text: ClassVar[str] = "The holder has no such pin"
    code: Literal["not-pinned"]
    holder: str
    key: str


class GenerationGoneProblem(Problem):
    title_text: ClassVar[str] = "The generation is gone"
    code: Literal["generation-gone"]
    key: str
    generation: str


class UnknownFileProblem(Problem):
    title_text: ClassVar[str] = "The model has no such file"
    code: Literal["unknown-file"]
    key: str
    file: str


class UnknownFetchProblem(Problem):
    title_text: ClassVar[str] = "There is no such fetch"
    code: Literal["unknown-fetch"]
    job: str


class UnknownUploadProblem(Problem):
    title_text: ClassVar[str] = "There is no such upload"
    code: Literal["unknown-upload"]
    upload: str


class MethodNotAllowedProblem(Problem):
    title_text: ClassVar[str] = "The route does not take that method"
    code: Literal["method-not-allowed"]
    method: str
    allowed: list[str]


class StalledProblem(Problem):
    title_text: ClassVar[str] = "The peer made no progress"
    code: Literal["stalled"]
    what: str
    seconds: float


class PinnedProblem(Problem):
    title_text: ClassVar[str] = "The model is pinned"
    code: Literal["pinned"]
    key: str
    holders: list[HolderShape]


class InUseProblem(Problem):
    title_text: ClassVar[str] = "The model is in use"
    code: Literal["in-use"]
    key: str
    reason: str


class BusyProblem(Problem):
    title_text: ClassVar[str] = "The key is on its way from another source"
    code: Literal["busy"]
    key: str
    job: str = Field(description="The id of the fetch under way.")
    source: str


class FetchCancelledProblem(Problem):
    title_text: ClassVar[str] = "The fetch was ended"
    code: Literal["fetch-cancelled"]
    key: str
    reason: str


class ExistsProblem(Problem):
    title_text: ClassVar[str] = "The key exists already"
    code: Literal["exists"]
    key: str
    digest: str


class PreconditionFailedProblem(Problem):
    title_text: ClassVar[str] = "The file is not the one that was asked for"
    code: Literal["precondition-failed"]
    sha256: str


class TooLargeProblem(Problem):
    """Permanent: trying again will not help."""

    title_text: ClassVar[str] = "Larger than the whole budget"
    code: Literal["too-large"]
    bytes: Size
    capacity: Size


class UnsupportedMediaTypeProblem(Problem):
    title_text: ClassVar[str] = "The body is encoded in a way that is not taken"
    code: Literal["unsupported-media-type"]
    header: str
    value: str


class RangeProblem(Problem):
    title_text: ClassVar[str] = "The range cannot be answered"
    code: Literal["range-not-satisfiable"]
    range: str
    bytes: Size


class DigestMismatchProblem(Problem):
    title_text: ClassVar[str] = "The content is not what was declared"
    code: Literal["digest-mismatch"]
    expected: str
    actual: str
    file: str


class TooManyProblem(Problem):
    title_text: ClassVar[str] = "Too many at once"
    code: Literal["too-many"]
    what: str
    limit: int


class InternalProblem(Problem):
    title_text: ClassVar[str] = "weightd failed"
    code: Literal["internal"]


class IoErrorProblem(Problem):
    title_text: ClassVar[str] = "The disk failed"
    code: Literal["io-error"]
    call: str
    error: str


class OriginFailedProblem(Problem):
    """What the origin did; ``retryable`` says whether it can do better later."""

    title_text: ClassVar[str] = "The origin failed"
    code: Literal["origin-failed"]
    source: str = Field(description="The reference, without credentials.")
    words: str = Field(description="The origin's own, shortened.")
    http_status: int | None


class OriginChangedProblem(Problem):
    title_text: ClassVar[str] = "The origin changed meanwhile"
    code: Literal["origin-changed"]
    source: str
    words: str
    http_status: int | None


class OriginTimeoutProblem(Problem):
    title_text: ClassVar[str] = "The origin does not answer in time"
    code: Literal["origin-timeout"]
    source: str
    what: str
    seconds: float


class BlockedProblem(Problem):
    """Transient: wait for a replica to drain, or place the model elsewhere."""

    title_text: ClassVar[str] = "Does not fit now"
    code: Literal["blocked"]
    reason: Literal["pins", "arriving", "pins-unknown"]
    bytes: Size
    free: Size
    evictable: Size
    pinned: Size
    arriving: Size
    holders: list[HolderShape]


class StateUnwritableProblem(Problem):
    title_text: ClassVar[str] = "The record of pins could not be written"
    code: Literal["state-unwritable"]
    error: str
    act: Literal["pin", "unpin", "accept-loss"] = Field(description="What was not done.")


class StartingProblem(Problem):
    title_text: ClassVar[str] = "The daemon is starting"
    code: Literal["starting"]


class DrainingProblem(Problem):
    title_text: ClassVar[str] = "The daemon is shutting down"
    code: Literal["draining"]


class UnhealthyProblem(Problem):
    title_text: ClassVar[str] = "The daemon is not well"
    code: Literal["unhealthy"]
    seconds: float


class DiskFullProblem(Problem):
    title_text: ClassVar[str] = "The filesystem is full"
    code: Literal["disk-full"]
    bytes: Size
    filesystem_free: Size
    min_free: Size
    others: Size
