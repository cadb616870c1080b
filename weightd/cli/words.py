"""Figures as people read them."""

from __future__ import annotations

from typing import Final

from weightd.units import format_bytes

_STEPS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def duration(seconds: float) -> str:
    """A length of time in its two largest units.

    >>> duration(0.2), duration(59), duration(3700), duration(90000)
    ('0s', '59s', '1h1m', '1d1h')
    """
    left, told = max(0.0, seconds), ""
    for size, unit in _STEPS:
        if left >= size or (unit == "s" and not told):
            count, left = divmod(left, size)
            if told:
                return f"{told}{count:.0f}{unit}" if count else told
            told = f"{count:.0f}{unit}"
        elif told:
            return told
    return told


def ago(seconds: float | None, now: float) -> str:
    """How long ago an instant was."""
    return "" if seconds is None else f"{duration(now - seconds)} ago"


def ahead(seconds: float | None, now: float) -> str:
    """In how long an instant will be."""
    return "" if seconds is None else f"in {duration(seconds - now)}"


def count(number: int, what: str) -> str:
    """So many of something.

    >>> count(1, "pin"), count(2, "pin"), count(2, "fetch"), count(1, "miss"), count(0, "miss")
    ('1 pin', '2 pins', '2 fetches', '1 miss', '0 misses')
    """
    plural = "es" if what.endswith(("ch", "s")) else "s"
    return f"{number} {what}{'' if number == 1 else plural}"


def share(part: float, whole: float) -> str:
    """A part in percent."""
    return f"{100 * part / whole:.0f}%" if whole else ""


def progress(done: int, whole: int | None, rate: float = 0.0, eta: float | None = None) -> str:
    """How far something of bytes is.

    >>> progress(84_000_000_000, 140_000_000_000, 1e9, 56)
    '60%  84 GB of 140 GB  1 GB/s  56s left'
    """
    parts = [f"{format_bytes(done)} of {format_bytes(whole)}" if whole else format_bytes(done)]
    if whole:
        parts.insert(0, share(done, whole))
    if rate > 0:
        parts.append(f"{format_bytes(int(rate))}/s")
    if eta is not None:
        parts.append(f"{duration(eta)} left")
    return "  ".join(parts)
