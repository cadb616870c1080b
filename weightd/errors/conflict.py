"""What the caller asks conflicts with what others rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weightd.errors.base import HolderFigures, WeightdError


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


def _names(holders: tuple[HolderFigures, ...], most: int = 5) -> str:
    """The first few holders' names, for a sentence."""
    if not holders:
        return "readers the kernel knows of"
    named = ", ".join(dict.fromkeys(figure.holder for figure in holders[:most]))
    return named if len(holders) <= most else f"{named} and {len(holders) - most} more"
