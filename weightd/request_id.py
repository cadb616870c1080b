"""Which request the work at hand is for, so that every line of the log can say so."""

from __future__ import annotations

import itertools
import re
import secrets
from contextvars import ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("weightd.request_id", default=None)
"""None where the work is nobody's; a task, and a call in a thread, goes on with its maker's."""

HEADER: Final = b"x-request-id"

_SANE: Final = re.compile(rb"[A-Za-z0-9._:=+/@-]{1,128}")
"""What a line of the log and a header can carry as it is."""


def accepted(given: bytes) -> str | None:
    """The id that a caller gave, None when it is longer or of other characters than one may be."""
    return given.decode("ascii") if _SANE.fullmatch(given) else None


class RequestIds:
    """Makes ids: of this process by how they begin, and each once."""

    def __init__(self) -> None:
        self._beginning = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """Another one."""
        return f"{self._beginning}-{next(self._numbers):x}"
