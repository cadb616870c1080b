"""What the daemon does not do now, or not here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from weightd.errors.base import WeightdError


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


ADMIN_SOCKET: Final = "the admin socket"
"""Stands for the door that asks for nobody; the edge puts in where that is."""

OPERATOR: Final = "whoever runs this node"
"""Stands for a door where no door would have answered: the settings are against it."""


@dataclass(eq=False)
class Forbidden(WeightdError):
    """``door`` is the one that would have answered."""

    reason: str
    door: str
    code: ClassVar[str] = "forbidden"

    @property
    def detail(self) -> str:
        at = "" if self.door == OPERATOR else "at "
        return f"{self.reason}. Ask {at}{self.door}."


@dataclass(eq=False)
class Unauthorized(WeightdError):
    """The token is missing or wrong; ``door`` is one that asks for none."""

    reason: str
    door: str
    code: ClassVar[str] = "unauthorized"

    @property
    def detail(self) -> str:
        return (
            f"{self.reason}. Send the token of token_file as 'Authorization: Bearer TOKEN', "
            f"or ask at {self.door}."
        )
