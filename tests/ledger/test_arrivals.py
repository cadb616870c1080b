"""Promises and grants: what an arrival may count on, and what it may write by now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ledger.audit import audit
from tests.ledger.drive import Node, blob, snapshot
from weightd.errors import Blocked, DiskFull, TooLarge
from weightd.ledger import IllegalMove, Room
from weightd.model import Key

NEW = Key("new")


@pytest.fixture
def node() -> Iterator[Node]:
    """a (100) and b (100) are there, at a budget of 300."""
    node = Node(300)
    node.put("a", 100)
    node.put("b", 100)
    yield node
    audit(node.ledger)


# -- Grants ------------------------------------------------------------------------


def test_writing_waits_until_the_victims_bytes_are_gone(node: Node) -> None:
    arrival = node.ledger.reserve(NEW, 150)
    [doomed] = arrival.victims
    assert not node.ledger.grant(arrival)
    node.ledger.evicted([doomed])
    for gone, may in ((30, False), (19, False), (1, True)):
        node.ledger.freed(doomed, gone)
        assert node.ledger.grant(arrival) is may
    assert arrival.granted == 150
    node.ledger.freed(doomed)
    assert node.ledger.usage().doomed == 0


def test_nothing_is_granted_while_a_victim_may_be_refused(node: Node) -> None:
    """Not even when the budget has the room, and only the disk needed the victim."""
    arrival = node.ledger.reserve(NEW, 50, Room(free=30, min_free=0, others=0))
    assert [doomed.id.key.name for doomed in arrival.victims] == ["a"]
    assert not node.ledger.grant(arrival)
    node.ledger.evicted(arrival.victims)
    assert node.ledger.grant(arrival)


def test_two_arrivals_are_not_granted_the_same_room(node: Node) -> None:
    node.ledger.debris(60)
    one = node.ledger.reserve(NEW, 40)
    two = node.ledger.reserve(Key("newer"), 40)
    assert node.ledger.grant(one)
    assert not node.ledger.grant(two), "200 resident, 60 debris and 40 granted are all there is"
    node.ledger.release(one)
    assert node.ledger.grant(two)


def test_what_grew_is_granted_anew(node: Node) -> None:
    arrival = node.ledger.reserve(NEW, 0)
    assert node.ledger.grant(arrival)
    node.ledger.grow(arrival, 60)
    assert (arrival.bytes, arrival.granted) == (60, 0)
    assert node.ledger.grant(arrival)
    node.ledger.grow(arrival, 40)
    before = snapshot(node.ledger)
    with pytest.raises(Blocked) as blocked:
        node.ledger.grow(arrival, 1)
    assert (blocked.value.bytes, blocked.value.free, blocked.value.evictable) == (101, 0, 200)
    assert "?bytes=" in blocked.value.detail
    with pytest.raises(TooLarge):
        node.ledger.grow(arrival, 201)
    assert snapshot(node.ledger) == before


def test_a_shrunk_budget_grants_nothing_and_says_no_negative_figure(node: Node) -> None:
    arrival = node.ledger.reserve(NEW, 50)
    node.ledger.capacity = 150
    assert not node.ledger.grant(arrival)
    with pytest.raises(Blocked) as blocked:
        node.ledger.grow(arrival, 1)
    assert blocked.value.free == 0
    assert node.ledger.usage().free == 0
    assert [one.id.key.name for one in node.ledger.plan(Key("x"), 0)] == ["a"]
    node.end(node.ledger.over(150))
    assert node.resident == {"b"}
    assert node.ledger.grant(arrival)


def test_more_than_was_promised_cannot_be_published(node: Node) -> None:
    arrival = node.ledger.reserve(NEW, 50)
    assert node.ledger.grant(arrival)
    before = snapshot(node.ledger)
    with pytest.raises(IllegalMove):
        node.ledger.commit(arrival, "d", (blob(30), blob(21)), 9.0)
    assert snapshot(node.ledger) == before
    twice = blob(50)
    node.ledger.commit(arrival, "d", (twice, twice), 9.0)
    assert node.used == 250


# -- Refusals ----------------------------------------------------------------------


def test_what_arrives_blocks_for_a_while_and_says_so(node: Node) -> None:
    node.pin("h", "a")
    arrival = node.ledger.reserve(NEW, 100)
    with pytest.raises(Blocked) as blocked:
        node.ledger.reserve(Key("newer"), 200)
    assert (blocked.value.reason, blocked.value.arriving) == ("arriving", 100)
    with pytest.raises(Blocked) as blocked:
        node.ledger.reserve(Key("newer"), 201)
    assert blocked.value.reason == "pins"
    node.ledger.release(arrival)
    node.ledger.reserve(Key("newer"), 200)


def test_the_filesystem_may_be_fuller_than_the_budget(node: Node) -> None:
    room = Room(free=20, min_free=5, others=777)
    assert node.ledger.plan(NEW, 15, room) == []
    assert [one.id.key.name for one in node.ledger.plan(NEW, 16, room)] == ["a"]
    node.pin("h", "a")
    node.pin("h", "b")
    before = snapshot(node.ledger)
    with pytest.raises(Blocked) as blocked:
        node.ledger.reserve(NEW, 16, room)
    assert (blocked.value.reason, blocked.value.free) == ("pins", 15), "an unpin would do"
    full_disk = Room(free=0, min_free=205, others=777)
    with pytest.raises(DiskFull) as full:
        node.ledger.reserve(NEW, 16, full_disk)
    assert snapshot(node.ledger) == before
    error = full.value
    assert (error.bytes, error.filesystem_free, error.min_free, error.others) == (16, 0, 205, 777)


def test_the_disk_that_arrivals_will_fill_is_promised_once(node: Node) -> None:
    """Two of 45 where the disk has room for one of them beside what is pinned."""
    node.pin("h", "a")
    node.pin("h", "b")
    room = Room(free=60, min_free=5, others=0)
    first = node.ledger.reserve(NEW, 45, room)
    assert node.ledger.grant(first, room)
    with pytest.raises(Blocked) as blocked:
        node.ledger.reserve(Key("second"), 45, room)
    assert (blocked.value.reason, blocked.value.free) == ("arriving", 10)
    first.written = 30
    with pytest.raises(Blocked):
        node.ledger.reserve(Key("second"), 45, Room(free=30, min_free=5, others=0))


def test_an_arrival_writes_only_when_the_disk_has_the_bytes(node: Node) -> None:
    """The victims are named for the disk: the budget has room enough from the beginning."""
    room = Room(free=20, min_free=5, others=777)
    arrival = node.ledger.reserve(NEW, 16, room)
    node.ledger.evicted(arrival.victims)
    assert not node.ledger.grant(arrival, room)
    node.ledger.freed(arrival.victims[0])
    assert not node.ledger.grant(arrival, room), "the filesystem has not given it back yet"
    assert node.ledger.grant(arrival, Room(free=120, min_free=5, others=777))


def test_what_was_written_during_a_look_is_decided_on_as_seen_and_not_written_on(
    node: Node,
) -> None:
    room = Room(free=20, min_free=5, others=777, unsure=8)
    assert node.ledger.plan(NEW, 15, room) == []
    arrival = node.ledger.reserve(NEW, 15, room)
    assert not node.ledger.grant(arrival, room), "8 of the 20 may be taken"
    assert node.ledger.may_be_granted(arrival, room)
    assert not node.ledger.may_be_granted(arrival, Room(free=19, min_free=5, others=777, unsure=8))
    assert node.ledger.grant(arrival, Room(free=20, min_free=5, others=777))


def test_when_the_budget_shrinks_the_newest_arrivals_are_given_up(node: Node) -> None:
    node.pin("h", "a")
    oldest, middle, newest = (node.ledger.reserve(Key(name), 20) for name in ("x", "y", "z"))
    node.ledger.capacity = 145
    assert node.ledger.refuse_unfit() == [newest]
    assert isinstance(newest.refusal, Blocked)
    node.end(node.ledger.over(145))
    assert node.ledger.usage().resident == 100, "nothing goes for who was given up"
    node.ledger.release(newest)
    assert node.ledger.usage().over_budget == 0
    node.ledger.capacity = 10
    assert {one.key.name for one in node.ledger.refuse_unfit()} == {"x", "y"}
    assert isinstance(oldest.refusal, TooLarge)
    assert isinstance(middle.refusal, TooLarge)
    assert node.ledger.refuse_unfit() == []


def test_when_the_disk_is_filled_arrivals_that_no_longer_fit_are_given_up(node: Node) -> None:
    node.pin("h", "a")
    node.pin("h", "b")
    first, second = (node.ledger.reserve(Key(name), 20) for name in ("x", "y"))
    assert node.ledger.grant(first)
    assert node.ledger.grant(second)
    first.written = second.written = 5
    assert node.ledger.refuse_unfit(Room(free=35, min_free=5, others=0)) == []
    assert node.ledger.refuse_unfit(Room(free=34, min_free=5, others=0)) == [second]
    assert isinstance(second.refusal, DiskFull)


def test_the_disk_counts_what_is_going_and_what_is_still_to_be_written(node: Node) -> None:
    room = Room(free=20, min_free=0, others=0)
    [doomed] = [node.ledger.evict(next(node.ledger.idle_first()).id)]
    node.ledger.evicted([doomed])
    assert node.ledger.plan(NEW, 120, room) == [], "20 are free and 100 will be"
    arrival = node.ledger.reserve(NEW, 70)
    assert [one.id.key.name for one in node.ledger.plan(None, 51, room)] == ["b"]
    assert node.ledger.plan(None, 50, room) == []
    assert node.ledger.grant(arrival)
    arrival.written = 70
    assert node.ledger.plan(None, 120, room) == [], "what was written is gone from free already"


def test_bytes_that_are_doomed_cannot_be_given_back_before_they_are_evicted(node: Node) -> None:
    doomed = node.ledger.evict(next(node.ledger.idle_first()).id)
    with pytest.raises(IllegalMove):
        node.ledger.freed(doomed)
    node.ledger.evicted([doomed])
    with pytest.raises(IllegalMove):
        node.ledger.evicted([doomed])
    with pytest.raises(IllegalMove):
        node.ledger.refused([doomed], ())
    node.ledger.freed(doomed, 1_000)
    assert node.ledger.usage().doomed == 0


def test_what_left_the_disk_is_counted(node: Node) -> None:
    """Victims that were unlinked, and what a given-up arrival had written; no publication."""
    arrival = node.ledger.reserve(NEW, 150)
    node.ledger.evicted(arrival.victims)
    node.ledger.freed(arrival.victims[0], 30)
    assert node.ledger.given_back == 30
    node.ledger.freed(arrival.victims[0])
    assert node.ledger.given_back == 100
    assert node.ledger.grant(arrival)
    arrival.written = 40
    node.ledger.release(arrival)
    assert node.ledger.given_back == 140
    node.put("c", 10)
    assert node.ledger.given_back == 140
