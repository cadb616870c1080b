"""What unfinished arrivals leave: gone on with if it may, and the first to go if it must."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.ledger.audit import audit
from tests.ledger.drive import Node, snapshot
from weightd.errors import Blocked, DiskFull, TooLarge
from weightd.ledger import IllegalMove, Parked, Room
from weightd.model import GenerationId, Key

HALF = Key("half")
NEW = Key("new")


@pytest.fixture
def node() -> Iterator[Node]:
    """a (100) and b (100) are there, at a budget of 300."""
    node = Node(300)
    node.put("a", 100)
    node.put("b", 100)
    yield node
    audit(node.ledger)


@pytest.fixture
def half(node: Node) -> Parked:
    """60 of the 80 bytes of an arrival that stopped."""
    arrival = node.ledger.reserve(HALF, 80)
    assert node.ledger.grant(arrival)
    arrival.written = 60
    return node.ledger.park(arrival)


def test_what_is_parked_counts_and_nothing_keeps_it(node: Node, half: Parked) -> None:
    usage = node.ledger.usage()
    assert (usage.parked, usage.used, usage.free) == (60, 260, 40)
    assert (usage.reserved, usage.written, usage.arrivals) == (0, 0, 0)
    assert (usage.pinned, usage.evictable) == (0, 260)


def test_it_goes_before_any_model_and_the_oldest_first(node: Node, half: Parked) -> None:
    older, younger = half, node.ledger.load_parked(Key("other"), 40)
    assert node.ledger.plan(NEW, 60) == []
    arrival = node.ledger.reserve(NEW, 60)
    assert [dropped.parked for dropped in arrival.dropped] == [older]
    assert arrival.victims == ()
    second = node.ledger.reserve(Key("newer"), 41)
    assert [dropped.parked for dropped in second.dropped] == [younger]
    assert [doomed.id.key.name for doomed in second.victims] == ["a"]
    assert node.ledger.usage().parked == 0
    with pytest.raises(IllegalMove):
        node.ledger.drop_parked(older)


def test_it_stays_when_the_victims_beside_it_are_refused(node: Node, half: Parked) -> None:
    older, younger = half, node.ledger.load_parked(Key("other"), 40)
    late = node.ledger.reserve(Key("late"), 0)
    before = node.ledger.usage()
    arrival = node.ledger.reserve(NEW, 101)
    assert [dropped.parked for dropped in arrival.dropped] == [older, younger]
    assert len(arrival.victims) == 1
    node.ledger.release(arrival)
    youngest = node.ledger.park(late)
    node.ledger.keep_parked(arrival.dropped)
    node.ledger.refused(arrival.victims, [])
    assert node.ledger.usage() == replace(before, arrivals=0)
    assert [one.parked for one in node.ledger.drop_over(0)] == [older, younger, youngest]
    with pytest.raises(IllegalMove):
        node.ledger.keep_parked(arrival.dropped)


def test_who_needs_its_room_writes_when_its_bytes_are_gone(node: Node, half: Parked) -> None:
    arrival = node.ledger.reserve(NEW, 80)
    [(parked, remains)] = arrival.dropped
    assert (parked, remains.bytes) == (half, 60)
    assert node.ledger.usage().doomed == 60
    assert not node.ledger.grant(arrival)
    node.ledger.freed(remains, 40)
    assert node.ledger.grant(arrival)
    node.ledger.freed(remains)
    assert (node.ledger.usage().doomed, node.ledger.given_back) == (0, 60)


def test_what_is_parked_is_on_the_disk_beside_what_may_be_written(node: Node, half: Parked) -> None:
    debris = node.ledger.debris(30)
    arrival = node.ledger.reserve(NEW, 40)
    assert arrival.dropped == ()
    assert not node.ledger.grant(arrival), "200 resident, 60 parked and 30 debris are here"
    node.ledger.freed(debris, 29)
    assert not node.ledger.grant(arrival)
    node.ledger.freed(debris)
    assert node.ledger.grant(arrival)


def test_to_go_on_takes_the_rest_only(node: Node, half: Parked) -> None:
    arrival = node.ledger.reserve(HALF, 80, resuming=half)
    assert (arrival.bytes, arrival.granted, arrival.written) == (80, 60, 60)
    assert (arrival.victims, arrival.dropped) == ((), ())
    assert node.ledger.usage().free == 20
    assert node.ledger.grant(arrival)
    assert arrival.granted == 80


def test_to_go_on_may_evict_and_drop_what_is_others(node: Node, half: Parked) -> None:
    other = node.ledger.load_parked(Key("other"), 40)
    assert [one.id.key.name for one in node.ledger.plan(HALF, 160, resuming=half)] == ["a"]
    arrival = node.ledger.reserve(HALF, 160, resuming=half)
    assert [dropped.parked for dropped in arrival.dropped] == [other]
    assert [doomed.id.key.name for doomed in arrival.victims] == ["a"]
    assert (arrival.bytes, arrival.granted) == (160, 60)


def test_a_refusal_leaves_it_parked(node: Node, half: Parked) -> None:
    node.pin("h", "a")
    before = snapshot(node.ledger)
    with pytest.raises(TooLarge):
        node.ledger.reserve(HALF, 301, resuming=half)
    with pytest.raises(Blocked) as refusal:
        node.ledger.reserve(HALF, 201, resuming=half)
    with pytest.raises(DiskFull):
        node.ledger.reserve(HALF, 80, Room(free=0, min_free=500, others=0), resuming=half)
    with pytest.raises(IllegalMove):
        node.ledger.reserve(NEW, 80, resuming=half)
    assert snapshot(node.ledger) == before
    blocked = refusal.value
    assert (blocked.reason, blocked.bytes, blocked.arriving) == ("pins", 201, 0)
    assert (blocked.free, blocked.evictable, blocked.pinned) == (40, 100, 100)


def test_what_may_go_is_told_as_evictable(node: Node, half: Parked) -> None:
    node.pin("h", "a")
    with pytest.raises(Blocked) as refusal:
        node.ledger.reserve(NEW, 201)
    blocked = refusal.value
    assert (blocked.free, blocked.evictable, blocked.pinned) == (40, 160, 100)


def test_one_that_is_larger_than_what_is_wanted_by_now_keeps_its_bytes(
    node: Node, half: Parked
) -> None:
    """The origin has a smaller file: the writer gives back what it takes away."""
    arrival = node.ledger.reserve(HALF, 50, resuming=half)
    assert (arrival.bytes, arrival.granted, arrival.written) == (60, 60, 60)
    node.ledger.release(arrival)
    assert node.ledger.usage().free == 100


def test_it_is_parked_again_with_what_came_besides(node: Node, half: Parked) -> None:
    arrival = node.ledger.reserve(HALF, 80, resuming=half)
    assert node.ledger.grant(arrival)
    arrival.written = 70
    again = node.ledger.park(arrival)
    assert (again.bytes, node.ledger.usage().parked) == (70, 70)
    with pytest.raises(IllegalMove):
        node.ledger.reserve(HALF, 80, resuming=half)


def test_it_goes_for_an_arrival_of_unknown_length(node: Node, half: Parked) -> None:
    arrival = node.ledger.reserve(NEW, 0)
    assert node.ledger.grow(arrival, 40) == ()
    [dropped] = node.ledger.grow(arrival, 30)
    assert dropped.parked is half
    with pytest.raises(Blocked):
        node.ledger.grow(arrival, 31)


def test_it_goes_for_the_disk_where_the_budget_has_room(node: Node, half: Parked) -> None:
    room = Room(free=10, min_free=0, others=0)
    arrival = node.ledger.reserve(NEW, 30, room)
    [dropped] = arrival.dropped
    assert arrival.victims == ()
    node.ledger.freed(dropped.remains)
    assert not node.ledger.grant(arrival, room)
    assert node.ledger.grant(arrival, Room(free=70, min_free=0, others=0))


def test_it_is_nothing_that_a_resumed_arrival_has_to_write(node: Node, half: Parked) -> None:
    """The disk has the rest, and would not have the whole."""
    room = Room(free=20, min_free=0, others=0)
    arrival = node.ledger.reserve(HALF, 80, room, resuming=half)
    assert arrival.victims == ()
    assert node.ledger.grant(arrival, room)
    assert node.ledger.short_on_disk(room) == 0


def test_a_shrunk_budget_takes_it_before_any_model(node: Node, half: Parked) -> None:
    node.ledger.resize(230)
    assert node.ledger.usage().over_budget == 30
    assert node.ledger.over(230) == [], "no model goes for what a leftover gives"
    assert [dropped.parked for dropped in node.ledger.drop_over(230)] == [half]
    assert node.ledger.usage().over_budget == 0
    assert node.ledger.drop_over(0) == []


def test_no_arrival_is_given_up_while_it_would_do(node: Node, half: Parked) -> None:
    for name in ("a", "b"):
        node.pin("h", name)
    arrival = node.ledger.reserve(NEW, 40)
    node.ledger.resize(240)
    assert node.ledger.refuse_unfit(Room(free=10, min_free=30, others=0)) == []
    assert node.ledger.refuse_unfit(Room(free=9, min_free=30, others=0)) == [arrival]


def test_it_goes_while_the_pins_are_unknown(node: Node, half: Parked) -> None:
    node.ledger.doubt_pins()
    assert [one.parked for one in node.ledger.reserve(NEW, 100).dropped] == [half]
    with pytest.raises(Blocked) as refusal:
        node.ledger.reserve(Key("newer"), 1)
    assert refusal.value.reason == "pins-unknown"


def test_to_park_lets_go_of_nothing_by_its_links(node: Node) -> None:
    """A retired generation that only they kept waits for the next `Ledger.over`."""
    ledger = node.ledger
    old = ledger.load(GenerationId(NEW, "old"), (), retired=True, last_used=0.0, hits=0)
    arrival = ledger.reserve(NEW, 10, links=[old.id])
    ledger.park(arrival)
    assert ledger.generation(old.id) is old
    assert not ledger.settling
    assert [doomed.id for doomed in ledger.over(300)] == [old.id]


def test_a_dry_run_spares_what_would_be_linked_to(node: Node) -> None:
    a, b = (node.get(name) for name in ("a", "b"))
    assert node.ledger.plan(NEW, 150) == [a]
    assert node.ledger.plan(NEW, 150, links=[a.id]) == [b]
    assert (a.links, a.guarded) == (0, False)
    with pytest.raises(Blocked):
        node.ledger.plan(NEW, 150, links=[a.id, b.id])
    assert node.ledger.plan(NEW, 150) == [a]


def test_content_is_found_while_it_can_be_linked_to() -> None:
    node = Node(300)
    [blob] = node.put("old", 100).blobs
    assert node.ledger.find_blob(blob.sha256, 99) is None
    old = node.get("old")
    assert node.ledger.find_blob(blob.sha256, 100) == (old.id, blob)
    new = node.put("new", 10, shared=[blob], links=[old.id])
    assert node.ledger.find_blob(blob.sha256, 100) == (new.id, blob)
    victim = node.ledger.evict(new.id)
    assert node.ledger.find_blob(blob.sha256, 100) == (old.id, blob)
    node.ledger.refused([victim], ())
    assert node.ledger.withdraw(old.id) is not None
    assert node.ledger.find_blob(blob.sha256, 100) == (new.id, blob)
    node.pin("h", "new")
    assert node.ledger.withdraw(new.id) is None, "its holder keeps it, damaged as it is"
    assert node.ledger.find_blob(blob.sha256, 100) is None
    audit(node.ledger)


def test_content_is_found_as_the_files_turned_out_to_be(node: Node) -> None:
    old = node.get("a")
    [blob] = old.blobs
    found = blob._replace(inode=blob.inode + 10**6)
    node.ledger.rebind(old.id, (found, found))
    assert node.ledger.find_blob(blob.sha256, 100) == (old.id, found)
    assert node.ledger.usage().resident == 200, "one inode counts once, by however many names"
