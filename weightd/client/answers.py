"""An answer as it comes in: whole, or line by line; still without any I/O."""

from __future__ import annotations

from typing import Final

from weightd.client.effects import Answer
from weightd.client.http1 import AnswerReader, BrokenAnswer, Data, End, Head, NeedData

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""No line of a stream is longer; a job's is some kilobytes."""


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
        elif isinstance(event, End):
            self.ended, self.reusable = True, event.reusable
        elif event.status < 200:
            self.wanted = True
        else:
            self.head = event

    def answer(self) -> Answer | None:
        """The whole answer, None before it has come."""
        if not self.ended or self.head is None:
            return None
        return Answer(self.head.status, self.head.headers, bytes(self._body))

    def line(self) -> bytes | None:
        """The next whole line, None before one has come.  Raises BrokenAnswer."""
        stop = self._body.find(b"\n")
        if stop >= 0:
            line = bytes(self._body[:stop])
            del self._body[: stop + 1]
            return line
        if len(self._body) > LINE_BYTES_MAX:
            raise BrokenAnswer(f"a line of the stream is longer than {LINE_BYTES_MAX} bytes")
        return None
