"""From what is on disk to books that agree with it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from weightd.cache.context import Context, Model
from weightd.model import GenerationId, Key
from weightd.store import Found, PinDatabase, PinsLost, Recency, ScanReport
from weightd.store import Loss as PinLoss

log = logging.getLogger(__name__)

UNREMEMBERED = Recency(sequence=0, last_used=0.0, hits=0)


class Standing(NamedTuple):
    """A found generation, and whether another one of its key is newer."""

    found: Found
    retired: bool


def enter(
    context: Context, report: ScanReport, recency: Mapping[GenerationId, Recency]
) -> list[GenerationId]:
    """Book what the scan found, the idlest first; answer what is newly known to be superseded.

    A generation of which nothing is remembered counts as used when it was
    published: it arrived after the last time recency was written down.  So does
    one that is remembered only from before it was evicted and came again.
    """
    newly: list[GenerationId] = []
    found: list[tuple[float, int, GenerationId, Standing, int]] = []
    for standing in _standings(report.models):
        manifest = standing.found.manifest
        id = manifest.id
        known = recency.get(id, UNREMEMBERED)
        if known.last_used < manifest.published_at:
            known = UNREMEMBERED
        last_used = known.last_used or manifest.published_at
        found.append((last_used, known.sequence or manifest.sequence, id, standing, known.hits))
    found.sort(key=itemgetter(0, 1))
    for last_used, _, id, standing, hits in found:
        context.ledger.load(
            id, standing.found.blobs, retired=standing.retired, last_used=last_used, hits=hits
        )
        context.models[id] = Model(standing.found.manifest)
        if standing.retired and not standing.found.superseded:
            newly.append(id)
    for damaged in report.damaged:
        figures = {"directory": damaged.name, "reason": damaged.reason}
        log.warning("damaged", extra=figures)
        context.counters.damaged_models += 1
    return newly


def latest(report: ScanReport, recency: Mapping[GenerationId, Recency]) -> float:
    """The latest instant that the disk knows of, in seconds since the epoch."""
    published = (found.manifest.published_at for found in report.models)
    used = (known.last_used for known in recency.values())
    return max((*published, *used), default=0.0)


def open_pins(context: Context, *, expected: bool) -> PinDatabase:
    """Open the pins; when they were lost, doubt every model until the loss is accepted.

    Blocks.  Raises IoError.
    """
    store = context.store
    try:
        return PinDatabase.open(store.state_path, context.reach, expected=expected)
    except PinsLost as lost:
        log.error("%s; nothing is evicted until that is accepted", lost)
        loss = PinLoss(context.clock.now(), lost.reason)
        return PinDatabase.open(store.state_path, context.reach, loss=loss)


def _standings(found: Iterable[Found]) -> Iterable[Standing]:
    """Of the generations of a key that no mark retires, the last published is current."""
    by_key: dict[Key, list[Found]] = defaultdict(list)
    for one in found:
        by_key[one.manifest.key].append(one)
    for generations in by_key.values():
        current = max(
            (one for one in generations if not one.superseded),
            key=lambda one: one.manifest.sequence,
            default=None,
        )
        for one in generations:
            yield Standing(one, retired=one is not current)
