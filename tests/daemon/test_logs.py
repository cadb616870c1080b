"""A log line is one line, in either style, with its figures."""

from __future__ import annotations

import json
import logging
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weightd.daemon.logs import JsonFormatter, TextFormatter


def record(message: str, **figures: Any) -> logging.LogRecord:
    made = logging.LogRecord("weightd.cache", logging.INFO, "", 0, message, None, None)
    made.created = 0.0
    made.__dict__.update(figures)
    return made


def test_text() -> None:
    line = TextFormatter().format(record("evicted", key="a/b", bytes=7))
    assert line == "1970-01-01T00:00:00.000Z INFO weightd.cache: evicted key=a/b bytes=7"


def test_json() -> None:
    line = JsonFormatter().format(record("evicted", key="a/b", bytes=7))
    assert json.loads(line) == {
        "at": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "logger": "weightd.cache",
        "message": "evicted",
        "key": "a/b",
        "bytes": 7,
    }


@given(st.text(), st.text())
def test_what_a_peer_sent_never_begins_a_line(message: str, value: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record(message.replace("%", ""), value=value))
        assert len(line.splitlines()) == 1
