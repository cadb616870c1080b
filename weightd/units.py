"""Bytes and durations as people write them.

Both families of byte units are accepted and never guessed between: ``GB`` is
10**9 and ``GiB`` is 2**30.  Whatever is parsed is an exact integer of bytes.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_DECIMAL: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
}
_BINARY: Final[dict[str, int]] = {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "pib": 2**50,
}
_BYTE_UNITS: Final = _DECIMAL | _BINARY
_SECONDS: Final[dict[str, int | Decimal]] = {
    "": 1,
    "ms": Decimal("0.001"),
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
}
_NUMBER: Final = re.compile(
    r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z%]*)", re.ASCII
)
_PRINTED: Final = ("B", "kB", "MB", "GB", "TB", "PB")

BYTES_FORM: Final = "a number of bytes such as 400GB, 1.5TiB or 1073741824"
SHARE_FORM: Final = f"{BYTES_FORM}, or a percentage such as 80%"
DURATION_FORM: Final = "a number of seconds such as 30, 0.5, 90s, 15m, 2h or 1d"


def parse_bytes(text: str) -> int:
    """Turn ``400GB``, ``1.5TiB`` or ``4096`` into bytes; a fraction of a byte is cut off.

    Raises ValueError naming the accepted form.
    """
    return _bytes(text, BYTES_FORM)


def parse_duration(text: str) -> float:
    """Turn ``30``, ``15m`` or ``1d`` into seconds.

    Raises ValueError naming the accepted form.
    """
    number, unit = _split(text, DURATION_FORM)
    factor = _SECONDS.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} is not {DURATION_FORM}")
    return float(number * factor)


def parse_share(text: str, whole: int) -> int:
    """Turn ``80%`` of ``whole`` bytes, or an absolute amount, into bytes.

    Raises ValueError naming the accepted form; a share lies between 0% and 100%.
    """
    number, unit = _split(text, SHARE_FORM)
    if unit != "%":
        return _bytes(text, SHARE_FORM)
    if number > 100:
        raise ValueError(f"{text!r} is more than 100%; give {SHARE_FORM}")
    return int(whole * number / 100)


def format_bytes(count: int) -> str:
    """Write bytes for people, in the decimal units that disks and models are sold in.

    >>> format_bytes(140_000_000_000), format_bytes(999), format_bytes(1_500_000)
    ('140 GB', '999 B', '1.5 MB')
    """
    size = float(count)
    step = 0
    while abs(size) >= 999.95 and step < len(_PRINTED) - 1:
        size /= 1000
        step += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_PRINTED[step]}"


def round_up(count: int, block: int) -> int:
    """The bytes that ``count`` bytes occupy in whole blocks of ``block`` bytes."""
    return -(-count // block) * block


def _bytes(text: str, form: str) -> int:
    number, unit = _split(text, form)
    factor = _BYTE_UNITS.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} is not {form}")
    return int(number * factor)


def _split(text: str, form: str) -> tuple[Decimal, str]:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {form}")
    return Decimal(match["number"]), match["unit"]
