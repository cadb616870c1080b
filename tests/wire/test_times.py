from __future__ import annotations

from weightd.wire.times import rfc3339, rfc3339_or_none


def test_times_are_utc_to_the_millisecond() -> None:
    assert rfc3339(1772366700.0625) == "2026-03-01T12:05:00.062Z"
    assert rfc3339_or_none(None) is None
