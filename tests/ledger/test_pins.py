"""Pins, leases, and what keeps a generation that was replaced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ledger.audit import audit
from tests.ledger.drive import Node, snapshot
from weightd.errors import Blocked, GenerationGone, InUse, NotPinned, NotResident, Pinned
from weightd.ledger import IllegalMove, Standing
from weightd.ledger.pins import HOLDERS_NAMED
from weightd.model import Key, Pin

LLAMA = Key("llama-70b")


@pytest.fixture
def node() -> Iterator[Node]:
    """llama-70b (140) is there, at a budget of 300."""
    node = Node(300)
    node.put("llama-70b", 140)
    yield node
    audit(node.ledger)


def lapse(node: Node, now: float) -> list[Pin]:
    """End the leases that are due."""
    due = node.ledger.lapsed(now)
    assert node.ledger.lapsed(now) == [], "each is told once"
    node.end(filter(None, [node.ledger.drop_pin(pin, now) for pin in due]))
    return due


# -- One holder, one pin ---------------------------------------------------------


def test_pinning_twice_is_one_pin(node: Node) -> None:
    first = node.ledger.pin("h", LLAMA, 10.0)
    again = node.ledger.pin("h", LLAMA, 20.0)
    assert (first.created, again.created) == (True, False)
    assert again.previous == first.pin
    assert again.pin.since == 10.0, "a renewal does not change since when it is held"
    assert node.ledger.usage().pins == 1
    assert again.generation.hits == 1, "a renewal is no lookup"
    node.unpin("h", "llama-70b")
    assert node.ledger.usage().pins == 0
    with pytest.raises(NotPinned):
        node.ledger.unpin("h", LLAMA, 30.0)


def test_a_pin_of_what_is_not_there_is_a_miss(node: Node) -> None:
    before = snapshot(node.ledger)
    with pytest.raises(NotResident):
        node.ledger.pin("h", Key("mixtral"), 10.0)
    with pytest.raises(NotResident):
        node.ledger.pin("h", Key("mixtral"), 10.0, digest="d")
    assert snapshot(node.ledger) == before


def test_the_end_of_the_last_pin_counts_as_a_use(node: Node) -> None:
    node.pin("h1", "llama-70b")
    node.pin("h2", "llama-70b")
    node.put("mixtral", 90)
    node.unpin("h1", "llama-70b")
    order = [one.id.key.name for one in node.ledger.idle_first()]
    assert order == ["llama-70b", "mixtral"], "one of two pins went"
    used = node.get("mixtral").last_used
    node.unpin("h2", "llama-70b")
    order = [one.id.key.name for one in node.ledger.idle_first()]
    assert order == ["mixtral", "llama-70b"]
    current = node.ledger.current(LLAMA)
    assert current is not None
    assert current.last_used > used


def test_ending_a_pin_that_is_not_there_changes_nothing(node: Node) -> None:
    node.pin("h1", "llama-70b")
    current = node.ledger.current(LLAMA)
    assert current is not None
    before = snapshot(node.ledger)
    with pytest.raises(IllegalMove):
        node.ledger.drop_pin(Pin("h2", current.id, 0.0), 50.0)
    assert snapshot(node.ledger) == before


# -- Leases ------------------------------------------------------------------------


def test_a_lease_lapses_when_its_time_has_come(node: Node) -> None:
    node.ledger.pin("h", LLAMA, 100.0, ttl=30.0)
    assert node.ledger.next_lapse() == 130.0
    assert node.ledger.lapsed(129.9) == []
    [pin] = lapse(node, 130.0)
    assert (pin.holder, pin.ttl, pin.until) == ("h", 30.0, 130.0)
    assert node.ledger.usage().pins == 0
    assert node.ledger.next_lapse() is None


def test_a_renewed_lease_lapses_when_the_renewal_says(node: Node) -> None:
    node.ledger.pin("h", LLAMA, 100.0, ttl=30.0)
    node.ledger.pin("h", LLAMA, 120.0, ttl=30.0)
    assert node.ledger.lapsed(149.0) == []
    assert node.ledger.next_lapse() == 150.0
    node.ledger.pin("h", LLAMA, 149.0, ttl=5.0)
    node.ledger.pin("h", LLAMA, 149.0, ttl=1.0)
    assert node.ledger.next_lapse() == 150.0, "a renewal may also shorten"
    assert [pin.until for pin in lapse(node, 200.0)] == [150.0]


def test_a_lease_renewed_without_a_ttl_never_lapses(node: Node) -> None:
    node.ledger.pin("h", LLAMA, 100.0, ttl=30.0)
    node.ledger.pin("h", LLAMA, 110.0)
    assert node.ledger.next_lapse() is None
    assert node.ledger.lapsed(1e9) == []
    assert node.ledger.usage().pins == 1


def test_a_lease_that_was_let_go_and_taken_again_lapses_once(node: Node) -> None:
    node.ledger.pin("h", LLAMA, 100.0, ttl=30.0)
    node.unpin("h", "llama-70b")
    node.ledger.pin("h", LLAMA, 100.0, ttl=30.0)
    assert len(lapse(node, 130.0)) == 1


def test_a_loaded_lease_lapses_as_it_would_have(node: Node) -> None:
    current = node.ledger.current(LLAMA)
    assert current is not None
    node.ledger.put_pin(Pin("h", current.id, since=5.0, ttl=30.0, until=35.0))
    assert (node.ledger.next_lapse(), current.hits) == (35.0, 0)
    assert [pin.since for pin in lapse(node, 40.0)] == [5.0]


@pytest.mark.parametrize("step", [1.0, 0.0])
def test_the_queue_does_not_grow_with_renewals(node: Node, step: float) -> None:
    """Not even when every renewal falls into the same instant."""
    for number in range(20):
        node.pin(f"other-{number}", "llama-70b")
    queue, longest = node.ledger._pins, 0
    for number in range(5_000):
        node.ledger.pin("h", LLAMA, 100.0 + step * number, ttl=30.0)
        longest = max(longest, len(queue._lapses))
    assert longest <= 64 + 4 * 21 + 1
    for number in range(5_000):
        node.ledger.pin("h2", LLAMA, 1e6 + number, ttl=30.0)
        node.ledger.unpin("h2", LLAMA, 1e6 + number)
        longest = max(longest, len(queue._lapses))
    assert longest <= 64 + 4 * 22 + 1
    audit(node.ledger)


# -- Generations -------------------------------------------------------------------


def test_a_holder_renews_the_generation_it_has(node: Node) -> None:
    old = node.pin("h", "llama-70b")
    new = node.put("llama-70b", 100)
    assert old.standing is Standing.RETIRED
    assert node.pin("h", "llama-70b") is old, "what it has mapped, though it is current no more"
    assert node.pin("h2", "llama-70b") is new
    assert node.ledger.usage().pins == 2


def test_exactly_that_generation(node: Node) -> None:
    old = node.pin("h", "llama-70b")
    new = node.put("llama-70b", 100)
    assert node.pin("h", "llama-70b", digest=old.id.digest) is old
    assert node.pin("h", "llama-70b", digest=new.id.digest) is new
    assert node.pin("h", "llama-70b") is new, "it has both; current wins"
    before = snapshot(node.ledger)
    with pytest.raises(GenerationGone) as gone:
        node.ledger.pin("h2", LLAMA, 50.0, digest=old.id.digest)
    assert (gone.value.key, gone.value.generation) == ("llama-70b", old.id.digest)
    assert snapshot(node.ledger) == before
    pins, doomed = node.ledger.unpin("h", LLAMA, 60.0)
    assert {pin.generation for pin in pins} == {old.id, new.id}
    assert [one.id for one in doomed] == [old.id]
    node.end(doomed)


def test_a_retired_pin_is_kept_while_another_takes_the_key_away(node: Node) -> None:
    old = node.pin("h", "llama-70b")
    new = node.put("llama-70b", 100)
    node.end([node.ledger.evict(new.id)])
    assert node.ledger.current(LLAMA) is None
    assert node.pin("h", "llama-70b") is old
    with pytest.raises(NotResident):
        node.ledger.pin("h2", LLAMA, 50.0)
    with pytest.raises(Pinned) as pinned:
        node.ledger.evict(old.id)
    assert [one.holder for one in pinned.value.holders] == ["h"]


def test_a_retired_generation_that_is_put_again_is_current_again(node: Node) -> None:
    old = node.pin("h", "llama-70b")
    new = node.put("llama-70b", 100)
    reservation = node.ledger.reserve(LLAMA, 0)
    succession = node.ledger.restore(reservation, old.id, 70.0)
    assert succession.generation is old
    assert succession.replaced is not None
    assert succession.replaced.id == new.id
    node.end([succession.replaced])
    assert node.ledger.current(LLAMA) is old
    assert old.pins.keys() == {"h"}
    assert node.used == 140


def test_current_wins_over_what_was_pinned_last(node: Node) -> None:
    old = node.pin("h", "llama-70b")
    new = node.put("llama-70b", 100)
    assert node.pin("h", "llama-70b", digest=new.id.digest) is new
    node.ledger.restore(node.ledger.reserve(LLAMA, 0), old.id, 70.0)
    assert node.pin("h", "llama-70b") is old


def test_a_damaged_victim_that_is_refused_is_not_answered_again(node: Node) -> None:
    current = node.ledger.current(LLAMA)
    assert current is not None
    doomed = node.ledger.withdraw(current.id)
    assert doomed is not None
    assert node.ledger.refused([doomed], [current.id]) == [current]
    assert node.ledger.current(LLAMA) is None
    assert current.standing is Standing.RETIRED
    doomed = node.ledger.mark_use(current.id, False)
    assert doomed is not None
    node.end([doomed])


def test_a_damaged_generation_is_answered_no_more_and_waits_for_its_pin(node: Node) -> None:
    old = node.pin("h", "llama-70b")
    assert node.ledger.withdraw(old.id) is None
    assert node.ledger.current(LLAMA) is None
    assert node.used == 140
    _, doomed = node.ledger.unpin("h", LLAMA, 50.0)
    node.end(doomed)
    assert node.used == 0


def test_holders_are_found_by_their_own_key_only(node: Node) -> None:
    node.put("mixtral", 90)
    node.pin("h", "llama-70b")
    node.pin("h", "mixtral")
    node.pin("h2", "mixtral")
    assert [pin.generation.key.name for pin in node.ledger.held("h", Key("mixtral"))] == ["mixtral"]
    assert node.ledger.held("h2", LLAMA) == []
    node.unpin("h", "mixtral")
    assert [pin.holder for pin in node.ledger.held("h", LLAMA)] == ["h"]
    assert [pin.holder for pin in node.ledger.held("h2", Key("mixtral"))] == ["h2"]


def test_a_refusal_names_the_holders_of_the_most_bytes() -> None:
    node = Node(10_000)
    for number in range(HOLDERS_NAMED + 20):
        node.put(f"m{number}", 10 + number)
        node.pin(f"h{number}", f"m{number}")
    with pytest.raises(Blocked) as blocked:
        node.put("grok", 9_000)
    sizes = [one.bytes for one in blocked.value.holders]
    assert sizes == list(range(79, 79 - HOLDERS_NAMED, -1))


# -- Other guards ------------------------------------------------------------------


def test_a_reader_keeps_what_it_reads(node: Node) -> None:
    current = node.ledger.current(LLAMA)
    assert current is not None
    node.ledger.read(current.id, 1)
    with pytest.raises(InUse):
        node.ledger.evict(current.id)
    with pytest.raises(Blocked):
        node.put("falcon", 200)
    node.put("llama-70b", 100)
    assert current.standing is Standing.RETIRED
    doomed = node.ledger.read(current.id, -1)
    assert doomed is not None
    node.end([doomed])


def test_a_victim_in_use_stands_again_where_it_stood(node: Node) -> None:
    node.put("mixtral", 90)
    reservation = node.ledger.reserve(Key("falcon"), 200)
    assert [doomed.id.key.name for doomed in reservation.victims] == ["llama-70b"]
    assert node.ledger.leaving(LLAMA)
    with pytest.raises(NotResident):
        node.ledger.use(LLAMA, 50.0)
    assert not node.ledger.grant(reservation)
    node.ledger.release(reservation)
    node.ledger.refused(reservation.victims, [reservation.victims[0].id])
    assert [one.id.key.name for one in node.ledger.idle_first()] == ["llama-70b", "mixtral"]
    assert not node.ledger.settling
    with pytest.raises(Blocked) as blocked:
        node.put("falcon", 200)
    [keeper] = blocked.value.holders
    assert (keeper.holder, keeper.key) == ("a process", "llama-70b"), "the kernel said so"
    reservation = node.ledger.reserve(Key("falcon"), 100)
    assert [doomed.id.key.name for doomed in reservation.victims] == ["mixtral"]


def test_a_victim_refused_after_two_successors_is_not_answered_again() -> None:
    """Its first successor was leaving too, so nothing was current when it came back."""
    node = Node(300)
    node.put("llama-70b", 100)
    first = node.ledger.reserve(Key("a"), 300)
    node.ledger.release(first)
    newer = node.put("llama-70b", 100)
    second = node.ledger.reserve(Key("b"), 300)
    node.ledger.release(second)
    superseded = node.ledger.refused(first.victims, ())
    assert [one.id for one in superseded] == [first.victims[0].id]
    assert node.ledger.current(LLAMA) is None
    assert node.ledger.refused(second.victims, ()) == []
    assert node.ledger.current(LLAMA) is newer
    audit(node.ledger)


def test_lost_pins_keep_everything_until_the_loss_is_accepted(node: Node) -> None:
    node.ledger.doubt_pins()
    known = node.ledger.pins_known
    assert not known
    with pytest.raises(Blocked) as blocked:
        node.put("falcon", 200)
    assert blocked.value.reason == "pins-unknown"
    assert "accept" in blocked.value.detail
    fresh = node.put("mixtral", 90)
    node.end([node.ledger.evict(fresh.id)])
    node.pin("h", "llama-70b")
    assert node.ledger.accept_loss() == []
    assert node.ledger.pins_known
    with pytest.raises(Blocked) as blocked:
        node.put("falcon", 200)
    assert blocked.value.reason == "pins", "it was pinned since"
    node.unpin("h", "llama-70b")
    node.put("falcon", 200)
