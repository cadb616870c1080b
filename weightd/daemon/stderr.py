"""Lines on stderr, without ever waiting for long for whoever reads them.

A pipe that nobody reads is full after some hundred lines.  Whoever wrote to it then would stand
there, and with him the loop: every request, and the signals that ask for an end.
"""

from __future__ import annotations

import logging
import os
import select
from typing import Final

PATIENCE: Final = 0.05
"""Seconds that a reader who was in time until now is waited for; then lines are lost at once."""

_AT_ONCE: Final = select.PIPE_BUF
"""Bytes that a pipe takes whole if it takes any."""


class Lines(logging.Handler):
    """Writes each record to a descriptor, or counts it where nobody takes it.

    How many were lost is the first thing that is said to who reads on.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)
        self._lost = 0
        self._broken_off = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._said(record)
            if self._lost:
                line = self._said(self._loss()) + line
        except Exception:  # noqa: BLE001 - a line that cannot be made ends nothing, as in logging
            self.handleError(record)
            return
        self._lost = 0 if self._write(line) else self._lost + 1

    def _said(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _loss(self) -> logging.LogRecord:
        said = "lines were lost: nobody read them in time"
        record = logging.LogRecord(__name__, logging.WARNING, "", 0, said, None, None)
        record.lines = self._lost
        return record

    def _write(self, line: bytes) -> bool:
        """Whether all of it was written."""
        if self._broken_off:
            line = b"\n" + line
        for at in range(0, len(line), _AT_ONCE):
            if not self._ready.poll(0 if self._lost else PATIENCE * 1000):
                return False
            try:
                os.write(self._descriptor, line[at : at + _AT_ONCE])
            except OSError:
                return False  # of a full disk, or of a reader who has gone
            self._broken_off = at + _AT_ONCE < len(line)
        return True
