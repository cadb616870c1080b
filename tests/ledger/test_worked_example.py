"""The worked example of a node with 300 GB for weights, clause by clause, on the books alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ledger.audit import audit
from tests.ledger.drive import Node, snapshot
from weightd.errors import Blocked, TooLarge
from weightd.ledger import Standing
from weightd.model import Key


@pytest.fixture
def node() -> Iterator[Node]:
    """llama-70b and mixtral were put, llama-70b was used, qwen-72b was put."""
    node = Node(300)
    node.put("llama-70b", 140)
    node.put("mixtral", 90)
    assert node.used == 230
    node.get("llama-70b")
    node.put("qwen-72b", 145)
    yield node
    audit(node.ledger)


def test_the_idlest_makes_room(node: Node) -> None:
    assert node.evicted == ["mixtral"]
    assert node.resident == {"llama-70b", "qwen-72b"}
    assert node.used == 285


def test_without_the_get_the_other_one_would_have_gone() -> None:
    node = Node(300)
    node.put("llama-70b", 140)
    node.put("mixtral", 90)
    node.put("qwen-72b", 145)
    assert node.evicted == ["llama-70b"]


def test_a_pin_blocks_and_its_holder_is_named(node: Node) -> None:
    node.pin("replica-1", "llama-70b")
    before = snapshot(node.ledger)
    with pytest.raises(Blocked) as refusal:
        node.put("falcon", 200)
    assert snapshot(node.ledger) == before
    assert node.resident == {"llama-70b", "qwen-72b"}
    blocked = refusal.value
    assert [(one.holder, one.key, one.bytes) for one in blocked.holders] == [
        ("replica-1", "llama-70b", 140)
    ]
    assert (blocked.reason, blocked.bytes) == ("pins", 200)
    assert (blocked.free, blocked.evictable, blocked.pinned, blocked.arriving) == (15, 145, 140, 0)
    assert "replica-1" in blocked.detail


def test_what_can_never_fit_is_another_answer(node: Node) -> None:
    node.pin("replica-1", "llama-70b")
    before = snapshot(node.ledger)
    with pytest.raises(TooLarge) as refusal:
        node.put("grok", 400)
    assert (refusal.value.bytes, refusal.value.capacity) == (400, 300)
    assert not isinstance(refusal.value, MemoryError)
    assert snapshot(node.ledger) == before
    assert node.resident == {"llama-70b", "qwen-72b"}


def test_exactly_the_whole_budget_is_not_too_large() -> None:
    node = Node(300)
    node.put("mixtral", 90)
    node.put("grok", 300)
    assert node.resident == {"grok"}
    with pytest.raises(TooLarge):
        node.put("grok-plus", 301)


def test_two_replicas_pin_one_model(node: Node) -> None:
    node.pin("replica-1", "llama-70b")
    node.pin("replica-2", "llama-70b")
    for holder in ("replica-1", "replica-2"):
        with pytest.raises(Blocked):
            node.put("falcon", 200)
        node.unpin(holder, "llama-70b")
    node.put("falcon", 200)
    assert node.resident == {"falcon"}
    # Both let go after qwen-72b was put, and the end of the last pin counts as a use.
    assert node.evicted == ["mixtral", "qwen-72b", "llama-70b"]


def test_a_replacement_is_made_room_for_by_what_it_replaces() -> None:
    node = Node(200)
    node.put("small", 40)
    old = node.put("llama-70b", 140)
    new = node.put("llama-70b", 140)
    assert node.evicted == ["llama-70b"], "not small, though it was idle longer"
    assert node.resident == {"small", "llama-70b"}
    assert node.ledger.current(Key("llama-70b")) is new
    assert node.ledger.generation(old.id) is None
    assert node.used == 180


def test_a_replacement_that_fits_beside_leaves_the_old_one_until_it_is_published() -> None:
    node = Node(300)
    old = node.put("llama-70b", 140)
    reservation = node.ledger.reserve(Key("llama-70b"), 140)
    assert reservation.victims == ()
    assert node.get("llama-70b") is old
    assert (node.used, node.ledger.usage().reserved) == (140, 140)
    node.ledger.release(reservation)
    node.put("llama-70b", 140)
    assert node.evicted == ["llama-70b"]
    assert node.used == 140


def test_a_pinned_generation_that_is_replaced_stays_until_its_pin_goes() -> None:
    node = Node(300)
    old = node.pin("replica-1", node.put("llama-70b", 140).id.key.name)
    new = node.put("llama-70b", 150)
    assert node.ledger.current(Key("llama-70b")) is new
    assert node.ledger.generation(old.id) is old
    assert old.standing is Standing.RETIRED
    usage = node.ledger.usage()
    assert (usage.resident, usage.retired, usage.used) == (150, 140, 290)
    with pytest.raises(Blocked) as refusal:
        node.put("falcon", 200)
    assert [one.holder for one in refusal.value.holders] == ["replica-1"]
    node.unpin("replica-1", "llama-70b")
    assert node.ledger.generation(old.id) is None
    assert node.used == 150
    node.put("falcon", 150)
    assert node.resident == {"llama-70b", "falcon"}


def test_a_refused_replacement_leaves_the_old_model(node: Node) -> None:
    old = node.pin("replica-1", "llama-70b")
    for size, error in ((200, Blocked), (400, TooLarge)):
        before = snapshot(node.ledger)
        with pytest.raises(error):
            node.put("llama-70b", size)
        assert snapshot(node.ledger) == before
    assert node.get("llama-70b") is old
    node.unpin("replica-1", "llama-70b")
    with pytest.raises(TooLarge):
        node.put("llama-70b", 400)
    assert node.get("llama-70b") is old


def test_a_failed_replacement_costs_only_the_victims_it_named(node: Node) -> None:
    reservation = node.ledger.reserve(Key("falcon"), 30)
    assert [doomed.id.key.name for doomed in reservation.victims] == ["llama-70b"]
    node.end(reservation.victims)
    node.ledger.release(reservation)
    assert node.resident == {"qwen-72b"}
    assert node.used == 145
