"""An answer as it comes in: whole, or line by line; still without any I/O."""

from __future__ import annotations

from weightd.client import doors
from weightd.client.effects import Answer, Stale
from weightd.client.http1 import AnswerReader, BrokenAnswer, Data, End, Head, NeedData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than the daemon answers of anything but a file's content, which is read from the disk."""


class Incoming:
    """What has come of the answer to one request.

    ``begun`` is whether a byte of it came, ``wanted`` whether the daemon asks
    for the body (``100 Continue``), ``reusable`` whether the connection takes
    another request once the answer is whole.
    """

    def __init__(self, method: str) -> None:
        self._reader = AnswerReader(method)
        self._body = bytearray()
        self.head: Head | None = None
        self.begun = False
        self.wanted = False
        self.ended = False
        self.reusable = False

    def receive(self, data: bytes) -> None:
        """Take what came; nothing means that the peer closed.  Raises BrokenAnswer."""
        self.begun = self.begun or bool(data)
        self._reader.receive(data)
        while not self.ended:
            event = self._reader.next_event()
            if isinstance(event, NeedData):
                return
            self._take(event)

    def _take(self, event: Head | Data | End) -> None:
        if isinstance(event, Data):
            self._body += event.bytes
            if len(self._body) > BODY_BYTES_MAX:
                raise BrokenAnswer(
                    f"what is to be read of the answer exceeds {BODY_BYTES_MAX} bytes"
                )
        elif isinstance(event, End):
            self.ended, self.reusable = True, event.reusable
        elif event.status < 200:
            self.wanted = True
        else:
            self.head = event

    @property
    def answering(self) -> bool:
        """Whether the body is asked for, or is not wanted any more."""
        return self.wanted or self.ended

    @property
    def has_line(self) -> bool:
        """Whether `line` has something to say."""
        return self.ended or (not self._is_refusal and b"\n" in self._body)

    def answer(self) -> Answer:
        """The answer, which has ended."""
        assert self.head is not None, "the answer has not begun"
        return Answer(self.head.status, self.head.headers, bytes(self._body))

    def line(self) -> bytes | Answer | None:
        """The next line of an answer; None at its end, and all of it when it is a refusal."""
        if self._is_refusal:
            return self.answer()
        stop = self._body.find(b"\n")
        if stop < 0:
            return None
        line = bytes(self._body[:stop])
        del self._body[: stop + 1]
        return line

    @property
    def _is_refusal(self) -> bool:
        return self.head is not None and self.head.status >= 400


class Pending:
    """A connection and what has come of the answer to the request that is under way on it.

    ``kept`` says that it was used before.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.kept = False
        self.incoming = Incoming("GET")

    @property
    def reusable(self) -> bool:
        """Whether the connection takes another request."""
        return self.incoming.ended and self.incoming.reusable

    def failure(self, error: Exception) -> Exception:
        """What to raise when the connection broke."""
        if self.kept and not self.incoming.begun:
            return Stale()
        return doors.broken(self.place, error)
