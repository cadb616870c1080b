"""What the caller named is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weightd.errors.base import WeightdError


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


@dataclass(eq=False)
class UnknownUpload(WeightdError, KeyError):
    """``upload`` is the id that was asked for."""

    upload: str
    code: ClassVar[str] = "unknown-upload"

    @property
    def detail(self) -> str:
        return (
            f"There is no upload {self.upload!r}: it expired, was given up, or ended with the "
            "daemon. Begin it anew."
        )


@dataclass(eq=False)
class UnknownFetch(WeightdError, KeyError):
    """``job`` is the id that was asked for."""

    job: str
    code: ClassVar[str] = "unknown-fetch"

    @property
    def detail(self) -> str:
        return f"There is no fetch {self.job!r}; jobs are kept for an hour after their end."
