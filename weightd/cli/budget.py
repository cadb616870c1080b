"""The budget as a bar: who occupies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from weightd.cli.terminal import coloured
from weightd.units import format_bytes

_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "held": ("█", "H"),
    "pinned": ("▓", "P"),
    "idle": ("▒", "i"),
    "arriving": ("»", ">"),
    "doomed": ("x", "x"),
    "others": ("/", "/"),
    "free": ("·", "."),
}

MEANINGS: Final[Mapping[str, str]] = {
    "held": "held or in use, as the kernel says",
    "pinned": "pinned by a holder",
    "idle": "evictable",
    "arriving": "promised to arrivals, and partials",
    "doomed": "evicted, not yet given back",
    "others": "of the budget, occupied by others on the disk",
    "free": "free",
}


class Part(NamedTuple):
    """So many bytes of the budget, and who has them."""

    name: str
    bytes: int


def parts_of(status: Mapping[str, Any], pins: Sequence[Mapping[str, Any]] | None) -> list[Part]:
    """The parts of the budget, in the order of the bar.

    ``pins`` tells holds from pins; None, where they may not be seen, counts all
    that is kept as pinned.
    """
    kept = status["pinned_bytes"]
    held = min(kept, _held(pins or ()))
    occupied = status["resident_bytes"] + status["retired_bytes"]
    free = status["free_bytes"]
    writable = max(0, status["filesystem_free_bytes"] - status["min_free_bytes"])
    usable = min(free, writable)
    return [
        Part("held", held),
        Part("pinned", kept - held),
        Part("idle", max(0, occupied - kept)),
        Part("arriving", status["reserved_bytes"] + status["parked_bytes"]),
        Part("doomed", status["doomed_bytes"]),
        Part("others", free - usable),
        Part("free", usable),
    ]


def _held(pins: Sequence[Mapping[str, Any]]) -> int:
    """The bytes of what the kernel keeps, each generation once."""
    seen = {(one["key"], one["generation"]): one["bytes"] for one in pins if one["kind"] != "pin"}
    return sum(seen.values())


def bar(parts: Sequence[Part], size: int, *, utf8: bool, colours: bool) -> str:
    """The bar, of exactly ``size`` characters; what is there at all has at least one."""
    drawn = []
    for part, count in zip(parts, _shares([one.bytes for one in parts], size), strict=True):
        mark = _MARKS[part.name][0 if utf8 else 1] * count
        drawn.append(coloured(mark, part.name, colours) if part.name != "free" else mark)
    return "".join(drawn)


def _shares(sizes: Sequence[int], whole: int) -> list[int]:
    """So many characters for each size, ``whole`` in all."""
    total = sum(sizes)
    if not total:
        return [0] * (len(sizes) - 1) + [whole]
    shares = [max(1, round(whole * size / total)) if size else 0 for size in sizes]
    while sum(shares) != whole:
        # The largest can best do with one less, or one more.
        largest = max(range(len(shares)), key=lambda at: shares[at])
        shares[largest] += 1 if sum(shares) < whole else -1
    return shares


def legend(parts: Sequence[Part], *, utf8: bool, colours: bool) -> list[str]:
    """A line for each part that there is."""
    shown = [part for part in parts if part.bytes or part.name in ("idle", "free")]
    sizes = [format_bytes(part.bytes) for part in shown]
    wide = max(len(size) for size in sizes)
    return [
        f"{_mark(part, utf8, colours)} {part.name:<9} {size:>{wide}}  {MEANINGS[part.name]}"
        for part, size in zip(shown, sizes, strict=True)
    ]


def short_legend(
    parts: Sequence[Part], width: int | None, *, utf8: bool, colours: bool
) -> list[str]:
    """The same in a line, or in as many as it takes."""
    lines, left = [""], width
    for part in parts:
        if not part.bytes and part.name != "free":
            continue
        told = f" {part.name} {format_bytes(part.bytes)}"
        if left is not None and lines[-1] and left < len(told) + 3:
            lines, left = [*lines, ""], width
        gap = "  " if lines[-1] else ""
        lines[-1] += f"{gap}{_mark(part, utf8, colours)}{told}"
        left = None if left is None else left - len(gap) - 1 - len(told)
    return lines


def _mark(part: Part, utf8: bool, colours: bool) -> str:
    mark = _MARKS[part.name][0 if utf8 else 1]
    return mark if part.name == "free" else coloured(mark, part.name, colours)
