"""Errors that only a client meets; all others are those of `weightd.errors`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from weightd.errors import WeightdError


@dataclass(eq=False)
class Unreachable(WeightdError, ConnectionError):
    """Nobody answers: no daemon runs, its socket is elsewhere, or it went away meanwhile.

    ``socket`` is the place that was tried last, ``looked`` all of them, ``error``
    the system's own words.
    """

    socket: str
    error: str
    looked: tuple[str, ...] = ()
    code: ClassVar[str] = "unreachable"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        where = self.socket if len(self.looked) < 2 else " or ".join(self.looked)
        return (
            f"No daemon answers at {where} ({self.error}). Start it (weightd serve, or systemctl "
            "start weightd), or say where its socket is (--socket or WEIGHTD_SOCKET)."
        )


@dataclass(eq=False)
class SocketForbidden(Unreachable, PermissionError):
    """The socket is there, and this user may not open it.

    ``replica`` is one beside it that the user may open, if there is one.
    """

    group: str | None = None
    replica: str | None = None
    code: ClassVar[str] = "socket-forbidden"
    retryable: ClassVar[bool] = False

    @property
    def detail(self) -> str:
        belongs = "its owner" if self.group is None else f"its owner and the group {self.group}"
        if self.replica is None:
            advice = (
                "Become one of them, or have the daemon open a socket for replicas "
                "(--replica-socket) and name that one (--socket or WEIGHTD_SOCKET)."
            )
        else:
            advice = f"Replicas of any user have their own: WEIGHTD_SOCKET={self.replica}"
        return f"This user may not open {self.socket} ({self.error}); {belongs} may. {advice}"


@dataclass(eq=False)
class NoAnswer(WeightdError, TimeoutError):
    """The daemon took the request and said nothing for so long."""

    socket: str
    seconds: float
    code: ClassVar[str] = "no-answer"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return (
            f"The daemon at {self.socket} took the request and said nothing for {self.seconds:g} "
            "s; its disk may be hanging. Nobody knows whether it was done: ask again."
        )


@dataclass(eq=False)
class Refused(WeightdError):
    """A refusal that has no class of its own here: of HTTP itself, or of a newer daemon.

    ``problem`` is the whole document.
    """

    kind: str
    words: str
    problem: Mapping[str, object] = field(default_factory=dict)
    # One class, in which both depend on what the daemon said.
    code: str = field(default="refused", kw_only=True)  # type: ignore[misc]
    retryable: bool = field(default=False, kw_only=True)  # type: ignore[misc]

    @property
    def detail(self) -> str:
        return self.words

    def figures(self) -> dict[str, object]:
        return dict(self.problem)


@dataclass(eq=False)
class NotTheSameDirectory(WeightdError):
    """What is at ``path`` here is not what the daemon calls ``theirs``, or nothing is."""

    path: str
    theirs: str
    root: str
    reason: str
    code: ClassVar[str] = "not-the-same-directory"

    @property
    def detail(self) -> str:
        return (
            f"The daemon has the model at {self.theirs}, and here {self.path} {self.reason}. Mount "
            f"the daemon's {self.root} into this container (read-only will do), at the same place "
            "or at one that WEIGHTD_ROOT names."
        )


@dataclass(eq=False)
class HoldUnseen(WeightdError):
    """The lock on the directory stands, and the daemon does not see it."""

    path: str
    seconds: float
    code: ClassVar[str] = "hold-unseen"

    @property
    def detail(self) -> str:
        return (
            f"A shared lock on {self.path} stands, and the daemon did not see it within "
            f"{self.seconds:g} s: another kernel (gVisor, Kata) or a network filesystem lies "
            "between, or what is mounted here is a copy of the daemon's root. Mount the root "
            "itself, or keep the model by a pin instead (weightd pin KEY --ttl 1h, renewed, or "
            "--ttl forever)."
        )


@dataclass(eq=False)
class HoldRefused(WeightdError):
    """Somebody has the directory locked for himself alone, for longer than the daemon ever does."""

    path: str
    seconds: float
    code: ClassVar[str] = "hold-refused"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return (
            f"{self.path} is locked by another process for itself alone, for {self.seconds:g} s "
            "now. Find it (lslocks) and end it; replicas take a shared lock."
        )


@dataclass(eq=False)
class LeaseLost(WeightdError):
    """A pin could not be renewed, and what it kept may be evicted."""

    holder: str
    key: str
    cause: WeightdError
    code: ClassVar[str] = "lease-lost"

    @property
    def detail(self) -> str:
        return f"The pin of {self.holder} on {self.key} was not renewed: {self.cause}"


@dataclass(eq=False)
class LeftMidway(Unreachable):
    """The daemon went away while it had the files that it was to adopt."""

    retryable: ClassVar[bool] = False

    @property
    def detail(self) -> str:
        return (
            f"The daemon at {self.socket} went away while it adopted files ({self.error}). Nothing "
            "is lost: start it (weightd serve, or systemctl start weightd), and they are in the "
            "model, or back where they were. Then ask again."
        )


@dataclass(eq=False)
class Unsendable(WeightdError, ValueError):
    """What was to be put cannot be: it is not there, or changed, or is nothing a model has."""

    path: str
    reason: str
    code: ClassVar[str] = "unsendable"

    @property
    def detail(self) -> str:
        return f"{self.path}: {self.reason}."
