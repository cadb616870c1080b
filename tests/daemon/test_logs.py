"""A log line is one line, in any style, with its figures, and nobody else can write one."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd.daemon.logs import (
    JournalFormatter,
    JsonFormatter,
    Level,
    TextFormatter,
    set_level,
)
from weightd.daemon.repeats import KINDS_MAX, LINES_MAX, SECONDS, Repeats
from weightd.request_id import REQUEST_ID
from weightd.systemd_journal import is_journal

FIELD = r' (\w+)=("(?:[^"\\]|\\.)*"|[^ "=]+)'
"""What a field is to whoever takes a line apart."""

STYLES = (TextFormatter(), JsonFormatter())


def record(message: str, level: int = logging.INFO, **figures: Any) -> logging.LogRecord:
    made = logging.LogRecord("weightd.cache", level, "", 0, message, None, None)
    made.created = 0.0
    made.__dict__.update(figures)
    return made


def failed(words: str) -> logging.LogRecord:
    made = record("it failed", logging.ERROR)
    try:
        raise RuntimeError(words)
    except RuntimeError:
        made.exc_info = sys.exc_info()
    return made


def test_text() -> None:
    line = TextFormatter().format(record("evicted", key="a/b", bytes=7, beneficiary=None))
    assert line == "1970-01-01T00:00:00.000Z INFO weightd.cache: evicted key=a/b bytes=7"


def test_json() -> None:
    line = JsonFormatter().format(record("evicted", key="a/b", bytes=7, beneficiary=None))
    assert json.loads(line) == {
        "at": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "logger": "weightd.cache",
        "message": "evicted",
        "key": "a/b",
        "bytes": 7,
    }


def test_the_request_is_on_the_line() -> None:
    token = REQUEST_ID.set("abc-1")
    try:
        text, told = (style.format(record("pinned", key="a")) for style in STYLES)
    finally:
        REQUEST_ID.reset(token)
    assert text.endswith(" pinned key=a request=abc-1")
    assert json.loads(told)["request"] == "abc-1"


@given(st.text(), st.text())
def test_what_a_peer_sent_never_begins_a_line(message: str, value: str) -> None:
    for style in STYLES:
        line = style.format(record(message.replace("%", ""), value=value))
        assert len(line.splitlines()) == 1


@given(st.text())
def test_what_a_peer_sent_never_looks_like_a_field(value: str) -> None:
    line = TextFormatter().format(record("refused", reason=value, code="blocked"))
    fields = line.partition(" refused")[2]
    names = [name for name, _ in re.findall(FIELD, fields)]
    assert names == ["reason", "code"]
    assert re.sub(FIELD, "", fields) == ""


@given(st.text())
def test_a_traceback_begins_no_line_of_its_own(words: str) -> None:
    head, *lines = TextFormatter().format(failed(words)).splitlines()
    assert head.endswith(" ERROR weightd.cache: it failed")
    assert lines
    assert all(line.startswith("  ") for line in lines)
    assert len(JsonFormatter().format(failed(words)).splitlines()) == 1


@given(st.text(), st.sampled_from(STYLES))
def test_each_line_to_the_journal_has_its_priority_and_no_other(
    words: str, style: logging.Formatter
) -> None:
    journal = JournalFormatter(style)
    for made in (failed(words), record("refused", logging.ERROR, reason=words)):
        lines = journal.format(made).splitlines()
        assert [line[:3] for line in lines] == ["<3>"] * len(lines)
        assert [line[3:] for line in lines] == style.format(made).splitlines()


@pytest.mark.parametrize(
    ("level", "priority"),
    [("DEBUG", 7), ("INFO", 6), ("WARNING", 4), ("ERROR", 3), ("CRITICAL", 2)],
)
def test_priorities_are_those_of_syslog(level: str, priority: int) -> None:
    line = JournalFormatter(TextFormatter()).format(record("m", logging.getLevelName(level)))
    assert line.startswith(f"<{priority}>1970")


def test_the_journal_is_known_by_its_inode(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        name = f"{found.st_dev}:{found.st_ino}"
        assert is_journal({"JOURNAL_STREAM": name}, stream)
        assert not is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}, stream)
        assert not is_journal({}, stream)
    assert not is_journal({"JOURNAL_STREAM": name}, stream)


# -- The level ---------------------------------------------------------------------------


@pytest.fixture
def levels() -> Iterator[None]:
    """The level of the whole process is set back."""
    names = ("", "uvicorn", "asyncio")
    before = [logging.getLogger(name).level for name in names]
    yield
    for name, number in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(number)


@pytest.mark.parametrize(
    ("settled", "usual"),
    [("info", "info"), ("warning", "warning"), ("error", "error"), ("debug", "info")],
)
@pytest.mark.usefixtures("levels")
def test_the_level_goes_to_debug_and_back(settled: str, usual: str) -> None:
    level = Level(settled)
    level.settle(settled)
    seen = [level.toggle() for _ in range(3)]
    assert seen == (["debug", usual, "debug"] if settled != "debug" else [usual, "debug", usual])
    assert logging.getLogger().level == logging.getLevelNamesMapping()[seen[-1].upper()]
    level.settle("warning")
    assert [level.toggle(), level.toggle()] == ["debug", "warning"]


@pytest.mark.parametrize(
    ("level", "quiet"),
    [("debug", "debug"), ("info", "warning"), ("warning", "warning"), ("error", "error")],
)
@pytest.mark.usefixtures("levels")
def test_what_the_server_says_is_never_below_the_level(level: str, quiet: str) -> None:
    set_level(level)
    least = logging.getLevelNamesMapping()[quiet.upper()]
    assert [logging.getLogger(name).level for name in ("uvicorn", "asyncio")] == [least, least]


# -- Storms ------------------------------------------------------------------------------


class Now:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def passed(
    repeats: Repeats, count: int, message: str, level: int = logging.INFO, **more: Any
) -> int:
    return sum(repeats.filter(record(message, level, **more)) for _ in range(count))


def left_out(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    lines = [vars(one) for one in caplog.records if one.message == "lines were left out"]
    caplog.clear()
    return {one["like"]: one["lines"] for one in lines}


def test_a_storm_is_counted_and_hides_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Now()
    repeats = Repeats(clock)
    assert passed(repeats, 10_000, "refused", code="blocked") == LINES_MAX
    assert passed(repeats, 1, "refused", code="too-large") == 1
    assert passed(repeats, 1, "evicted") == 1
    assert passed(repeats, 10_000, "request", logging.DEBUG) == 10_000
    repeats.tell()
    assert left_out(caplog) == {}
    clock.now += SECONDS
    repeats.tell()
    assert left_out(caplog) == {"refused": 10_000 - LINES_MAX}
    assert passed(repeats, LINES_MAX + 5, "refused", code="blocked") == LINES_MAX
    repeats.tell(over=True)
    assert left_out(caplog) == {"refused": 5}


def test_kinds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats(Now())
    lines = sum(passed(repeats, 1, f"hostile {n}") for n in range(10 * KINDS_MAX))
    assert lines <= KINDS_MAX + LINES_MAX
    repeats.tell(over=True)
    assert re.fullmatch("other lines", next(iter(left_out(caplog)), "other lines"))
