"""How log lines are written: for people, or as JSON for a collector.

A line says one thing that matters; its figures are fields, given as ``extra``, and
``request`` is the id of the request it belongs to.  No header, token or credential is ever
one of them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from weightd.daemon.repeats import Repeats
from weightd.daemon.stderr import Lines
from weightd.request_id import REQUEST_ID
from weightd.systemd_journal import descriptor_of, is_journal

Style: TypeAlias = Literal["text", "json"]

_STANDARD: Final = frozenset(
    logging.LogRecord("", 0, "", 0, "", None, None).__dict__.keys()
    | {"message", "asctime", "taskName", "color_message"}
)

_PLAIN: Final = re.compile(r"[^\s\"=]+")
"""A value that is one word in a line of text; any other stands in quotes."""

_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
"""The least level of each of the priorities of sd-daemon(3); below them it is 7."""


def set_up_logging(style: Style, level: str) -> Repeats:
    """Send everything to stderr in one style; called once, by the daemon.

    Answers what bounds how much that is.
    """
    formatter: logging.Formatter = JsonFormatter() if style == "json" else TextFormatter()
    if is_journal(os.environ, sys.stderr):
        formatter = JournalFormatter(formatter)
    repeats = Repeats()
    descriptor = descriptor_of(sys.stderr)
    handler: logging.Handler = (
        logging.StreamHandler(sys.stderr) if descriptor is None else Lines(descriptor)
    )
    handler.setFormatter(formatter)
    handler.addFilter(repeats)
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)
    return repeats


def set_level(level: str) -> None:
    """Log no less than ``level`` from now on."""
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(least)
    # The servers' own account of starting and stopping is what the daemon says itself.
    quiet = least if level == "debug" else max(least, logging.WARNING)
    logging.getLogger("uvicorn").setLevel(quiet)
    logging.getLogger("asyncio").setLevel(quiet)


class Level:
    """The least that is logged: what the settings say, or debug until that is taken back."""

    def __init__(self, settled: str) -> None:
        self._settled = settled
        self._now = settled

    def settle(self, level: str) -> None:
        """Log by the settings, as they are by now."""
        self._settled = self._now = level
        set_level(level)

    def toggle(self) -> str:
        """Log at debug, or again by the settings (by info where they say debug); which it is."""
        usual = "info" if self._settled == "debug" else self._settled
        self._now = usual if self._now == "debug" else "debug"
        set_level(self._now)
        return self._now


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO weightd.cache: message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        figures = "".join(f" {name}={_word(value)}" for name, value in _figures(record).items())
        head = f"{_at(record)} {record.levelname} {record.name}: {record.getMessage()}"
        return "\n".join([_printable(head + figures), *self._trace(record)])

    def _trace(self, record: logging.LogRecord) -> list[str]:
        """The lines of a traceback, each of them indented, as no line of its own ever is."""
        if not record.exc_info:
            return []
        lines = self.formatException(record.exc_info).splitlines()
        return ["  " + _printable(line) for line in lines]


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_figures(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class JournalFormatter(logging.Formatter):
    """Another style's lines, each behind its priority, which the journal takes off."""

    def __init__(self, style: logging.Formatter) -> None:
        super().__init__()
        self._lines = style

    def format(self, record: logging.LogRecord) -> str:
        found = (priority for least, priority in _PRIORITIES if record.levelno >= least)
        prefix = f"<{next(found, 7)}>"
        return "\n".join(prefix + line for line in self._lines.format(record).split("\n"))


def _at(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _figures(record: logging.LogRecord) -> dict[str, object]:
    """What is told beside the message; what is None is left out."""
    figures = {
        name: value
        for name, value in record.__dict__.items()
        if name not in _STANDARD and value is not None
    }
    request = REQUEST_ID.get()
    return figures if request is None else {**figures, "request": request}


def _word(value: object) -> str:
    """A value as one word, or in quotes, so that nothing in it looks like a field of its own."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _printable(line: str) -> str:
    """A peer's bytes cannot begin a line of their own in the log."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
