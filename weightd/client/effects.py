"""What the client's logic asks of whoever runs it: everything that waits or touches the world.

The logic is written once, as generators that yield these and are sent what came
of each (`Flow`).  The two clients differ only in how they do them: one blocks,
the other awaits.  Named tuples, since a command that asks for one path has no
time to make data classes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Flow: TypeAlias = "Generator[Effect, Any, T]"
"""Logic that ends with a T; what it is sent back depends on the effect it yields."""


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Body(NamedTuple):
    """Bytes to send: ``pieces`` gives them from the start each time, ``length`` says how many.

    Reading them may block and may raise `Unsendable`.
    """

    pieces: Callable[[], Iterator[bytes]]
    length: int


class Request(NamedTuple):
    """One call.  ``patience`` is how long, in seconds, the daemon may take to begin its answer."""

    method: str
    target: str
    headers: Mapping[str, str] = _NONE
    content: bytes = b""
    body: Body | None = None
    patience: float = 60.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange(NamedTuple):
    """Send a request and answer its `Answer`.  Raises Unreachable, NoAnswer and Unsendable."""

    request: Request


class Begin(NamedTuple):
    """Send a request on a connection of its own and answer a `Pending` to ask about it."""

    request: Request


class Settle(NamedTuple):
    """Answer the `Answer` to what was begun, or None when none has begun within ``seconds``."""

    pending: object
    seconds: float


class NextLine(NamedTuple):
    """Answer the next line of the answer to what was begun, None at its end.

    Waits ``seconds`` for one.  An answer that is a refusal is answered whole, as
    an `Answer`.
    """

    pending: object
    seconds: float


class Close(NamedTuple):
    """Close the connection of what was begun."""

    pending: object


class Pause(NamedTuple):
    """Wait so many seconds."""

    seconds: float


class Rest(NamedTuple):
    """Wait so many seconds, or until it is to end: answer whether it is."""

    seconds: float


class Do(NamedTuple):
    """Call what touches the disk, and answer what it answers."""

    act: Callable[[], object]


class Tell(NamedTuple):
    """Pass something on to whoever follows, as soon as it is known."""

    what: object


Effect: TypeAlias = Exchange | Begin | Settle | NextLine | Close | Pause | Rest | Do | Tell
"""Something to do; an error that it raises is thrown into the flow."""
