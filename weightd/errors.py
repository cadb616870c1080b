"""One class per thing a caller can do about it, with the figures as attributes.

``code`` is the error's name everywhere: in Python, over HTTP, in the metrics
and in the exit code of the command line.  ``retryable`` says whether the same
request can succeed later with nobody changing a setting.  ``detail`` says what
happened, with the figures, and what to do next.

A miss (`NotResident`), a model that can never fit (`TooLarge`) and one that
cannot fit now (`Blocked`) are three different answers, and derive from three
different built-in exceptions so that no ``except`` clause takes one for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, NamedTuple

from weightd.units import format_bytes


class HolderFigures(NamedTuple):
    """Who keeps bytes from being evicted; times are in seconds since the epoch."""

    holder: str
    key: str
    bytes: int
    since: float | None
    until: float | None


@dataclass(eq=False)
class WeightdError(Exception):
    """Anything weightd refuses or fails, with a sentence that says what to do."""

    code: ClassVar[str]
    retryable: ClassVar[bool] = False
    retry_after: ClassVar[int | None] = None

    @property
    def detail(self) -> str:
        """What happened, with the figures, and what to do next."""
        raise NotImplementedError

    def figures(self) -> dict[str, object]:
        """The figures by name, as an answer carries them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __str__(self) -> str:
        return self.detail


# -- What the caller wrote is wrong ------------------------------------------


@dataclass(eq=False)
class InvalidKey(WeightdError, ValueError):
    key: str
    reason: str
    code: ClassVar[str] = "invalid-key"

    @property
    def detail(self) -> str:
        return (
            f"{self.key!r} is not a key: {self.reason}. A key is 'name' or 'name@revision', "
            "a name being 1 to 6 segments joined by '/', in 200 bytes."
        )


@dataclass(eq=False)
class InvalidRequest(WeightdError, ValueError):
    """``what`` names the parameter, header or field."""

    what: str
    reason: str
    code: ClassVar[str] = "invalid-request"

    @property
    def detail(self) -> str:
        return f"{self.what}: {self.reason}."


@dataclass(eq=False)
class InvalidArchive(WeightdError, ValueError):
    """``member`` is the archive's name for the offending entry, or None for the whole."""

    reason: str
    member: str | None = None
    code: ClassVar[str] = "invalid-archive"

    @property
    def detail(self) -> str:
        where = "The archive" if self.member is None else f"Member {self.member!r} of the archive"
        return f"{where} was refused: {self.reason}. Nothing of it was kept."


@dataclass(eq=False)
class DigestMismatch(WeightdError, ValueError):
    expected: str
    actual: str
    file: str
    code: ClassVar[str] = "digest-mismatch"

    @property
    def detail(self) -> str:
        return (
            f"The sha256 of {self.file!r} is {self.actual}, not {self.expected}. "
            "Nothing was kept; send the file again, or correct the digest."
        )


# -- What the caller named is not there ---------------------------------------


@dataclass(eq=False)
class NotResident(WeightdError, KeyError):
    """A miss."""

    key: str
    code: ClassVar[str] = "not-resident"

    @property
    def detail(self) -> str:
        return f"{self.key} is not on this node. Put it, or fetch it from its origin."


@dataclass(eq=False)
class NotPinned(WeightdError, KeyError):
    holder: str
    key: str
    code: ClassVar[str] = "not-pinned"

    @property
    def detail(self) -> str:
        return f"{self.holder} holds no pin on {self.key}; there is nothing to let go."


@dataclass(eq=False)
class GenerationGone(WeightdError, KeyError):
    key: str
    generation: str
    code: ClassVar[str] = "generation-gone"

    @property
    def detail(self) -> str:
        return (
            f"Generation {self.generation} of {self.key} was replaced or evicted. "
            "Look the key up again and use the generation and path of that answer."
        )


@dataclass(eq=False)
class UnknownFile(WeightdError, KeyError):
    key: str
    file: str
    code: ClassVar[str] = "unknown-file"

    @property
    def detail(self) -> str:
        return f"{self.key} has no file {self.file!r}; its record lists the files it has."


# -- What the caller asks conflicts with what others rely on ------------------


@dataclass(eq=False)
class Pinned(WeightdError):
    key: str
    holders: tuple[HolderFigures, ...]
    code: ClassVar[str] = "pinned"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return (
            f"{self.key} is pinned by {_names(self.holders)} and stays as it is. "
            "Unpin it, or wait until its holders let go."
        )


@dataclass(eq=False)
class InUse(WeightdError):
    """Nobody pinned the model, but some process holds, maps or reads it."""

    key: str
    reason: str
    code: ClassVar[str] = "in-use"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.key} is in use: {self.reason}. It stays; try again when its reader is done."


@dataclass(eq=False)
class Exists(WeightdError):
    key: str
    digest: str
    code: ClassVar[str] = "exists"

    @property
    def detail(self) -> str:
        return (
            f"{self.key} is already here with digest {self.digest}, and the request was to create "
            "only. Leave out If-None-Match to replace it."
        )


# -- What the caller asks does not fit ----------------------------------------


@dataclass(eq=False)
class TooLarge(WeightdError, ValueError):
    """Permanent: bigger than the whole budget.  ``capacity`` is the configured budget in bytes."""

    bytes: int
    capacity: int
    code: ClassVar[str] = "too-large"

    @property
    def detail(self) -> str:
        return (
            f"{format_bytes(self.bytes)} can never fit a budget of {format_bytes(self.capacity)} "
            f"({self.bytes} > {self.capacity} bytes). Raise the capacity, or place this model on "
            "another node; trying again will not help."
        )


BlockedReason = Literal["pins", "arriving", "pins-unknown"]


@dataclass(eq=False)
class Blocked(WeightdError, MemoryError):
    """Transient: it would fit, but too much is pinned, in use or still arriving.

    All figures in bytes.  ``free`` is unpromised room, ``evictable`` what
    eviction could add, ``pinned`` what pins, holds and use keep, ``arriving``
    what is promised to other arrivals.
    """

    reason: BlockedReason
    bytes: int
    free: int
    evictable: int
    pinned: int
    arriving: int
    holders: tuple[HolderFigures, ...] = ()
    hint: str | None = None
    code: ClassVar[str] = "blocked"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 5

    @property
    def detail(self) -> str:
        figures = (
            f"{format_bytes(self.bytes)} do not fit now: {format_bytes(self.free)} free, "
            f"{format_bytes(self.evictable)} evictable, {format_bytes(self.pinned)} pinned or in "
            f"use, {format_bytes(self.arriving)} arriving. "
        )
        return figures + (self.hint or self._advice())

    def figures(self) -> dict[str, object]:
        figures = super().figures()
        del figures["hint"]
        return figures

    def _advice(self) -> str:
        if self.reason == "pins-unknown":
            return (
                "The record of pins was lost, so nothing is evicted until an operator accepts "
                "the loss (POST /v1/pins/accept-loss) or the grace period passes."
            )
        if self.reason == "arriving":
            return "Wait for the arrivals under way, or place the replica on another node."
        return (
            f"Held by {_keepers(self.holders)}. Wait for a replica to drain (?wait=SECONDS does), "
            "or place this one on another node."
        )


@dataclass(eq=False)
class DiskFull(WeightdError):
    """The filesystem, not the budget, has no room.  All figures in bytes."""

    bytes: int
    filesystem_free: int
    min_free: int
    others: int
    code: ClassVar[str] = "disk-full"

    @property
    def detail(self) -> str:
        return (
            f"{format_bytes(self.bytes)} fit the budget but not the filesystem: "
            f"{format_bytes(self.filesystem_free)} are free, {format_bytes(self.min_free)} of "
            f"them must stay so, and others occupy {format_bytes(self.others)}. Free space on "
            "the filesystem, or lower min_free."
        )


# -- What went wrong on the way -----------------------------------------------


@dataclass(eq=False)
class Stalled(WeightdError, TimeoutError):
    what: str
    seconds: float
    code: ClassVar[str] = "stalled"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return (
            f"{self.what} came too slowly or not at all for {self.seconds:g} s and was given up; "
            "what was reserved for it is free again. Send it anew."
        )


@dataclass(eq=False)
class IncompleteBody(WeightdError, ValueError):
    """The peer closed before it had sent what it declared; nobody is left to answer."""

    received: int
    declared: int | None
    code: ClassVar[str] = "invalid-request"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        declared = "a complete body" if self.declared is None else f"the {self.declared} declared"
        return f"The body ended after {self.received} bytes instead of {declared}. Send it anew."


@dataclass(eq=False)
class IoError(WeightdError):
    """``call`` is the system call and its object, ``error`` the system's own words."""

    call: str
    error: str
    code: ClassVar[str] = "io-error"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.call} failed: {self.error}. Nothing was acknowledged; see to the disk."


@dataclass(eq=False)
class StateUnwritable(WeightdError):
    """``act`` is what could not be brought to stable storage and therefore was not done."""

    error: str
    act: Literal["pin", "unpin", "accept-loss"] = "pin"
    code: ClassVar[str] = "state-unwritable"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 5

    @property
    def detail(self) -> str:
        undone = {
            "pin": "the pin was not taken, or not renewed",
            "unpin": "the pin was not let go and still stands",
            "accept-loss": "the loss of pins was not accepted and nothing is evicted yet",
        }
        return (
            f"state.db could not be brought to stable storage ({self.error}), so "
            f"{undone[self.act]}. Free space on the filesystem, or see to the disk, and try again."
        )


# -- What an origin did -------------------------------------------------------


@dataclass(eq=False)
class OriginFailed(WeightdError):
    """The origin refused, broke off or lied.

    ``source`` is the reference without credentials, ``words`` the origin's own
    words (at most some hundred characters, no credentials), ``http_status`` its
    status where it speaks HTTP.  Here it depends on what happened whether a
    retry can help, and ``retry_after`` is what the origin asked for, in seconds.
    ``ranges`` is False when it was asked for a part and gives only the whole.
    """

    source: str
    words: str
    http_status: int | None = None
    # One class, in which it depends on the case.
    retryable: bool = field(default=True, kw_only=True)  # type: ignore[misc]
    retry_after: int | None = field(default=None, kw_only=True)  # type: ignore[misc]
    ranges: bool = True
    code: ClassVar[str] = "origin-failed"

    @property
    def detail(self) -> str:
        what = f"{self.source}: {self.words}."
        return what + (" Try again later." if self.retryable else " Trying again will not help.")

    def figures(self) -> dict[str, object]:
        return {"source": self.source, "words": self.words, "http_status": self.http_status}


@dataclass(eq=False)
class OriginChanged(OriginFailed):
    """What is there is no longer what was listed; list it anew."""

    code: ClassVar[str] = "origin-changed"

    @property
    def detail(self) -> str:
        return f"{self.source} changed while it was fetched ({self.words}). Fetch it again."


@dataclass(eq=False)
class OriginTimeout(WeightdError, TimeoutError):
    source: str
    what: str
    seconds: float
    code: ClassVar[str] = "origin-timeout"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.source}: {self.what} took more than {self.seconds:g} s. Try again later."


@dataclass(eq=False)
class Busy(WeightdError):
    """Another arrival of the key from another source is on its way; ``job`` is its id."""

    key: str
    job: str
    source: str
    code: ClassVar[str] = "busy"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return (
            f"{self.key} is being fetched from {self.source} already (job {self.job}). Wait for "
            "it, or delete that job first."
        )


@dataclass(eq=False)
class UnknownFetch(WeightdError, KeyError):
    """``job`` is the id that was asked for."""

    job: str
    code: ClassVar[str] = "unknown-fetch"

    @property
    def detail(self) -> str:
        return f"There is no fetch {self.job!r}; jobs are kept for an hour after their end."


@dataclass(eq=False)
class FetchCancelled(WeightdError):
    """The job was ended by a DELETE, or because nobody wanted it any more."""

    key: str
    reason: str
    code: ClassVar[str] = "fetch-cancelled"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"The fetch of {self.key} was ended: {self.reason}. Ask again if it is wanted."


# -- What the daemon does not do now, or not here -------------------------------


@dataclass(eq=False)
class Starting(WeightdError):
    code: ClassVar[str] = "starting"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 1

    @property
    def detail(self) -> str:
        return "The daemon is starting and does not answer this yet. Try again in a moment."


@dataclass(eq=False)
class Draining(WeightdError):
    code: ClassVar[str] = "draining"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 5

    @property
    def detail(self) -> str:
        return "The daemon is shutting down and takes nothing new. Try again when it is back."


@dataclass(eq=False)
class TooMany(WeightdError):
    what: str
    limit: int
    code: ClassVar[str] = "too-many"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 5

    @property
    def detail(self) -> str:
        return f"There are already {self.limit} {self.what}, the limit. Try again soon."


@dataclass(eq=False)
class Forbidden(WeightdError):
    """``door`` is the one that would have answered."""

    reason: str
    door: str
    code: ClassVar[str] = "forbidden"

    @property
    def detail(self) -> str:
        return f"{self.reason}. Ask at {self.door}."


def _keepers(holders: tuple[HolderFigures, ...], most: int = 5) -> str:
    """The first few holders and what each keeps, for a sentence."""
    if not holders:
        return "readers through weightd"
    named = ", ".join(f"{one.holder} ({one.key})" for one in holders[:most])
    return named if len(holders) <= most else f"{named} and {len(holders) - most} more"


class RootUnusable(Exception):
    """The daemon cannot own this root; the message is one line that says why and what to do."""


def _names(holders: tuple[HolderFigures, ...], most: int = 5) -> str:
    """The first few holders' names, for a sentence."""
    if not holders:
        return "readers the kernel knows of"
    named = ", ".join(dict.fromkeys(figure.holder for figure in holders[:most]))
    return named if len(holders) <= most else f"{named} and {len(holders) - most} more"
