"""The books checked against themselves, from scratch.

Every sum that the ledger keeps as it goes is added up again from the
generations, reservations and remains.  It looks inside and changes nothing, so
that a test of any room may call it between two steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from weightd.ledger import Doomed, Generation, Ledger, Standing
from weightd.model import Blob, GenerationId


def audit(ledger: Ledger) -> None:
    """Raises AssertionError, with the last stimuli, where the books contradict themselves.

    That a sum stays below the budget is not checked: the budget may have shrunk.
    """
    faults = [
        *_faults_of_sums(ledger),
        *_faults_of_standings(ledger),
        *_faults_of_leavers(ledger),
        *_faults_of_pins(ledger),
        *_faults_of_contents(ledger),
    ]
    if faults:
        story = "\n  ".join(str(stimulus) for stimulus in ledger.story)
        raise AssertionError("\n".join(faults) + "\nafter\n  " + story)


def _faults_of_sums(ledger: Ledger) -> Iterable[str]:
    generations = list(ledger.generations())
    resident = _blobs(one for one in generations if one.standing is Standing.RESIDENT)
    retired = _blobs(one for one in generations if one.standing is Standing.RETIRED) - resident
    kept = _blobs(one for one in generations if one.guarded)
    evictable = _blobs(generations) - kept
    usage, promises = ledger.usage(), ledger._promises
    yield from _differ("resident", usage.resident, _bytes(resident))
    yield from _differ("retired", usage.retired, _bytes(retired))
    yield from _differ("pinned", usage.pinned, _bytes(kept))
    parked = sum(one.bytes for one in ledger._partials.oldest_first())
    yield from _differ("parked", usage.parked, parked)
    yield from _differ("evictable", usage.evictable, _bytes(evictable) + parked)
    yield from _differ("reserved", usage.reserved, sum(one.bytes for one in promises._open))
    yield from _differ("granted", promises.granted, sum(one.granted for one in promises._open))
    yield from _differ("doomed", usage.doomed, _doomed(ledger))
    for reservation in promises._open:
        if not reservation.open:
            yield f"{reservation} is entered and closed"
        if not 0 <= reservation.written <= reservation.granted <= reservation.bytes:
            yield f"{reservation} has written more than granted, or was granted more than promised"


def _faults_of_standings(ledger: Ledger) -> Iterable[str]:
    shelf = ledger._shelf
    keys = sorted(ledger.keys(), key=str)
    half = len(keys) // 2
    yield from _differ("keys in order", ledger.keys_after(None, len(keys) + 1), keys)
    if keys:
        behind = ledger.keys_after(keys[half], len(keys))
        yield from _differ("keys behind one of them", behind, keys[half + 1 :])
    order = list(shelf._policy.order())
    ordered = set(order)
    yield from _differ("ids in the order of eviction", len(order), len(ordered))
    for name, one in shelf.generations.items():
        yield from _differ(f"the id of {name}", one.id, name)
        resident = one.standing is Standing.RESIDENT
        yield from _differ(f"{name} current", shelf.current.get(name.key) is one, resident)
        yield from _differ(f"{name} in the order of eviction", name in ordered, resident)
        yield from _differ(
            f"{name} among the retired", name in shelf._retired, one.standing is Standing.RETIRED
        )
        if one.standing is Standing.LEAVING:
            yield f"{name} is leaving and still in the books"
        if one.damaged and resident:
            yield f"{name} is damaged and still answered"
        if one.readers < 0 or one.links < 0:
            yield f"{name} has {one.readers} readers and {one.links} links"
        yield from _differ(f"the bytes of {name}", one.bytes, _bytes(set(one.blobs)))
    yield from _differ("models", len(shelf.current), ledger.usage().models)


def _faults_of_leavers(ledger: Ledger) -> Iterable[str]:
    shelf = ledger._shelf
    leaving = [doomed for several in shelf.leaving.values() for doomed in several]
    unsettled = [one for one in shelf.remains if isinstance(one, Doomed) and not one.settled]
    yield from _differ("unsettled victims", {id(one) for one in leaving}, {*map(id, unsettled)})
    for doomed in leaving:
        if doomed.generation.standing is not Standing.LEAVING or doomed.generation.guarded:
            yield f"{doomed.id} is leaving, and {doomed.generation.standing.value} or guarded"
        if doomed.id in shelf.generations:
            yield f"{doomed.id} is leaving and still in the books"
    if any(one.bytes < 0 for one in shelf.remains):
        yield "more bytes left the disk than were doomed"
    kept = set(shelf.generations) | {doomed.id for doomed in leaving}
    forgotten = [gone for gone in shelf._policy.order() if gone not in kept]
    if forgotten:
        yield f"the order of eviction still names {forgotten}"


def _faults_of_pins(ledger: Ledger) -> Iterable[str]:
    book = ledger._pins
    pinned = [one for one in ledger.generations() if one.pins]
    indexed = {
        (holder, one.id) for (holder, _), held in book._index.items() for one in held.values()
    }
    stand = {(holder, one.id) for one in pinned for holder in one.pins}
    yield from _differ("pins by holder", indexed, stand)
    yield from _differ("pins counted", ledger.usage().pins, len(stand))
    yield from _differ("pinned generations", set(book._pinned), {one.id for one in pinned})
    queued = {(lapse.holder, lapse.id, lapse.at) for lapse in book._lapses}
    for one in pinned:
        for holder, pin in one.pins.items():
            if (pin.holder, pin.generation) != (holder, one.id):
                yield f"{pin} is entered as {holder}'s on {one.id}"
            if pin.until is not None and (holder, one.id, pin.until) not in queued:
                yield f"{pin} will never lapse"


def _faults_of_contents(ledger: Ledger) -> Iterable[str]:
    here: dict[tuple[str, int], set[GenerationId]] = {}
    for one in ledger.generations():
        for blob in () if one.damaged else one.blobs:
            here.setdefault((blob.sha256, blob.bytes), set()).add(one.id)
            found = ledger._shelf.contents._holders.get((blob.sha256, blob.bytes), {}).get(one.id)
            if found not in one.blobs:
                yield f"{one.id} is to be linked to for {found}, which it does not have"
    indexed = {content: set(ids) for content, ids in ledger._shelf.contents._holders.items()}
    yield from _differ("holders by content", indexed, here)


def _doomed(ledger: Ledger) -> int:
    """Blobs that only leaving and evicted generations name, less what went of them, and debris."""
    remains = ledger._shelf.remains
    gone = [one for one in remains if isinstance(one, Doomed)]
    blobs = _blobs(one.generation for one in gone) - _blobs(ledger.generations())
    debris = sum(one.bytes for one in remains if not isinstance(one, Doomed))
    return _bytes(blobs) - sum(one.freed for one in gone) + debris


def _blobs(generations: Iterable[Generation]) -> set[Blob]:
    return {blob for one in generations for blob in one.blobs}


def _bytes(blobs: set[Blob]) -> int:
    return sum(blob.bytes for blob in blobs)


def _differ(what: str, booked: object, counted: object) -> Iterable[str]:
    if booked != counted:
        yield f"{what}: {booked} booked, {counted} counted"
