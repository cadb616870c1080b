"""Who keeps a generation, as it is shown: pins, and the holds and uses that the kernel tells."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from weightd.cache.context import Sighting
from weightd.cache.records import PinView
from weightd.ledger import Generation


def pins_of(generation: Generation, *, current: bool, most: int | None = None) -> list[PinView]:
    """Its pins, ``most`` of them at most, the first pinned first."""
    return [
        PinView(
            kind="pin",
            generation=generation.id,
            current=current,
            bytes=generation.bytes,
            since=pin.since,
            holder=pin.holder,
            until=pin.until,
            ttl=pin.ttl,
            forever=pin.forever,
            uid=pin.uid,
        )
        for pin in islice(generation.pins.values(), most)
    ]


def uses_of(generation: Generation, seen: Sighting, *, current: bool) -> list[PinView]:
    """The hold or use that was seen: each process behind it, or the one that is out of sight."""
    out_of_sight = PinView(
        kind=seen.use.kind,
        generation=generation.id,
        current=current,
        bytes=generation.bytes,
        since=seen.since,
    )
    return [
        replace(out_of_sight, since=since, pid=one.pid, process=one.name)
        for one, since in seen.processes.items()
    ] or [out_of_sight]
