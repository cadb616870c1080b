"""Every figure for status and metrics, put together at one instant."""

from __future__ import annotations

import asyncio

from weightd.cache.context import Context
from weightd.cache.records import FilesystemFigures, Snapshot
from weightd.errors import IoError
from weightd.ledger import Generation
from weightd.store import Filesystem


async def take_snapshot(
    context: Context,
    *,
    foreign: tuple[str, ...],
    started_at: float,
    waiting: int,
    swept: bool,
    partials: int,
    fetching: int,
) -> Snapshot:
    """Ask the filesystem, then copy the books.  Raises IoError.

    ``swept`` says whether every model was looked at for use since the start.
    """
    overhead, filesystem = await _seen(context)
    sees_use = swept and context.store.leases_work
    usage, counters, ledger = context.ledger.usage(), context.counters, context.ledger
    pinned = [one for one in ledger.generations() if one.pins]
    idle = [since for one in pinned for since in _idle_pins(one)] if sees_use else []
    return Snapshot(
        state=context.state,
        root=context.store.root,
        started_at=started_at,
        capacity_bytes=usage.capacity,
        used_bytes=usage.used,
        resident_bytes=usage.resident,
        retired_bytes=usage.retired,
        reserved_bytes=usage.reserved,
        written_bytes=usage.written,
        doomed_bytes=usage.doomed,
        pinned_bytes=usage.pinned,
        evictable_bytes=usage.evictable,
        free_bytes=usage.free,
        over_budget_bytes=usage.over_budget,
        overhead_bytes=overhead,
        filesystem=FilesystemFigures(
            total=filesystem.total,
            free=filesystem.free,
            min_free=context.min_free,
            others=max(0, filesystem.total - filesystem.free - usage.used - overhead),
        ),
        models=usage.models,
        retired_models=usage.retired_models,
        arrivals=usage.arrivals,
        waiting=waiting,
        pins=usage.pins,
        holds=sum(1 for seen in context.sightings.values() if seen.use.kind == "hold"),
        uses=sum(1 for seen in context.sightings.values() if seen.use.kind == "use"),
        oldest_pin_since=min(
            (pin.since for one in pinned for pin in one.pins.values()), default=None
        ),
        oldest_idle_pin_since=min(idle, default=None),
        pins_known=ledger.pins_known,
        leases_work=context.store.leases_work,
        lookups={"hit": counters.lookups["hit"], "miss": counters.lookups["miss"]},
        lookup_bytes={"hit": counters.lookup_bytes["hit"], "miss": 0},
        evictions=dict(counters.evictions),
        evicted_bytes=dict(counters.evicted_bytes),
        admission_rejections=dict(counters.rejections),
        puts=dict(counters.puts),
        put_bytes=counters.put_bytes,
        refetched_bytes=counters.refetched_bytes,
        damaged_models=counters.damaged_models,
        expired_pins=counters.expired_pins,
        foreign=foreign,
        acquire_seconds={
            "hit": counters.hit_seconds.figures(),
            "fetched": counters.fetched_seconds.figures(),
        },
        admission_wait_seconds=counters.admission_seconds.figures(),
        put_seconds=counters.put_seconds.figures(),
        partials=partials,
        parked_bytes=usage.parked,
        fetches=dict(counters.fetches),
        fetch_bytes=dict(counters.fetch_bytes),
        fetch_seconds=counters.fetch_seconds.figures(),
        fetches_in_flight=fetching,
        fetch_joined=counters.fetch_joined,
    )


def _idle_pins(generation: Generation) -> list[float]:
    """Since when the pins stand that nothing shows to be of use to anybody.

    A lease is renewed by somebody who lives, and one forever is meant to need nobody.
    """
    if generation.in_use:
        return []
    return [pin.since for pin in generation.pins.values() if pin.ttl is None and not pin.forever]


async def _seen(context: Context) -> tuple[int, Filesystem]:
    """Overhead and filesystem, each asked once.  Raises IoError, also when the disk hangs."""
    seconds = context.options.answer_timeout
    try:
        async with asyncio.timeout(seconds):
            overhead = await context.workers.disk(context.store.overhead)
            return overhead, await context.workers.disk(context.store.filesystem)
    except TimeoutError:
        raise IoError(
            call=f"statvfs of {context.store.root}", error=f"no answer within {seconds:g} s"
        ) from None
