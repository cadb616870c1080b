"""What the caller asks does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from weightd.errors.base import HolderFigures, WeightdError
from weightd.units import format_bytes


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
            f"Held by {keepers(self.holders)}. Wait for a replica to drain (?wait=SECONDS does), "
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


def keepers(holders: tuple[HolderFigures, ...], most: int = 5) -> str:
    """The first few holders and what each keeps, for a sentence."""
    if not holders:
        return "readers through weightd"
    named = ", ".join(f"{one.holder} ({one.key})" for one in holders[:most])
    return named if len(holders) <= most else f"{named} and {len(holders) - most} more"
