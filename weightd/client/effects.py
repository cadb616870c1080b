"""What the client's logic asks of whoever runs it: everything that waits or touches the world.

The logic is written once, as generators that yield these and are sent what came
of each (`Flow`).  The two clients differ only in how they do them: one blocks,
the other awaits.
"""

from __future__ import annotations

from weightd.client.shapes import Shape

# As everywhere that a lookup comes by: importing `typing` takes longer than that.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from typing import Any, Final, TypeAlias, TypeVar

    T = TypeVar("T")

Flow: TypeAlias = "Generator[Effect, Any, T]"
"""Logic that ends with a T; what it is sent back depends on the effect it yields."""

_NONE: Final[Mapping[str, str]] = {}


class Stale(Exception):
    """A connection that was used before broke, and nothing of this request was answered."""


class Stopped(BaseException):
    """Whoever followed what a flow tells has left: the flow cleans up and raises it again.

    In place of GeneratorExit, after which a generator may not ask for anything,
    not even for its connection to be closed.
    """


class Body(Shape):
    """Bytes to send: ``pieces`` gives them from the start each time, ``length`` says how many.

    Reading them may block and may raise `Unsendable`.
    """

    pieces: Callable[[], Iterator[bytes]]
    length: int


class Request(Shape):
    """One call.  ``patience`` is how long, in seconds, the daemon may take to begin its answer."""

    method: str
    target: str
    headers: Mapping[str, str] = _NONE
    content: bytes = b""
    body: Body | None = None
    patience: float = 60.0

    def within(self, seconds: float) -> Request:
        """The same with another patience."""
        return Request(
            self.method, self.target, self.headers, self.content, self.body, patience=seconds
        )


class Answer(Shape):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Begin(Shape):
    """Send a request, and answer what to ask about it: a connection until it is closed.

    Where it need not be ``fresh`` the connection may be one that was used before,
    which the daemon may have closed meanwhile: that raises `Stale`.  Raises
    Unreachable, NoAnswer, and Unsendable for the body.
    """

    request: Request
    fresh: bool = True


class Settle(Shape):
    """Answer the whole `Answer` to what was begun, or None when it took ``seconds`` and more.

    Raises Unreachable, and `Stale` as `Begin` does.
    """

    pending: Any
    seconds: float


class NextLine(Shape):
    """Answer the next line of the answer to what was begun, None at its end.

    Waits ``seconds`` for one.  An answer that is a refusal is answered whole, as
    an `Answer`.
    """

    pending: Any
    seconds: float


class Close(Shape):
    """Be done with what was begun: its connection is closed, or kept for another request."""

    pending: Any


class Pause(Shape):
    """Wait so many seconds."""

    seconds: float


class Rest(Shape):
    """Wait so many seconds, or until it is to end: answer whether it is."""

    seconds: float


class Do(Shape):
    """Call what touches the disk, and answer what it answers."""

    act: Callable[[], object]


class Tell(Shape):
    """Pass something on to whoever follows, as soon as it is known."""

    what: object


Effect: TypeAlias = Begin | Settle | NextLine | Close | Pause | Rest | Do | Tell
"""Something to do; an error that it raises is thrown into the flow."""
