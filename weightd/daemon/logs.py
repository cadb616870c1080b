"""How log lines are written: for people, or as JSON for a collector.

A line says one thing that matters; its figures are fields, given as ``extra``.
No header, token or credential is ever one of them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

_STANDARD: Final = frozenset(
    logging.LogRecord("", 0, "", 0, "", None, None).__dict__.keys()
    | {"message", "asctime", "taskName", "color_message"}
)


def set_up_logging(style: Literal["text", "json"], level: str) -> None:
    """Send everything to stderr in one style; called once, by the daemon."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)


def set_level(level: str) -> None:
    """Log no less than ``level`` from now on."""
    logging.getLogger().setLevel(level.upper())
    # The servers' own account of starting and stopping is what the daemon says itself.
    quiet = logging.DEBUG if level == "debug" else logging.WARNING
    logging.getLogger("uvicorn").setLevel(quiet)
    logging.getLogger("asyncio").setLevel(quiet)


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO weightd.cache: message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        figures = "".join(f" {name}={value}" for name, value in _figures(record).items())
        head = f"{_at(record)} {record.levelname} {record.name}: {record.getMessage()}"
        return _printable(head + figures) + self._trace(record)

    def _trace(self, record: logging.LogRecord) -> str:
        return "\n" + self.formatException(record.exc_info) if record.exc_info else ""


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


def _at(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _figures(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _printable(line: str) -> str:
    """A peer's bytes cannot begin a line of their own in the log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
