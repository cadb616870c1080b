"""Generations that share blobs by hard link: counted once, freed with the last name."""

from __future__ import annotations

import pytest

from tests.ledger.audit import audit
from tests.ledger.drive import Node, snapshot
from weightd.errors import Blocked, InUse
from weightd.ledger import Standing
from weightd.model import GenerationId, Key

LLAMA = Key("llama-70b")


def test_a_shared_blob_counts_once_and_goes_with_its_last_name() -> None:
    node = Node(300)
    old = node.put("llama-70b", 100, 40)
    base = max(old.blobs, key=lambda one: one.bytes)
    new = node.put("llama-70b-tuned", 50, shared=[base], links=[old.id])
    assert node.used == 190
    assert (old.bytes, new.bytes) == (140, 150)
    node.end([node.ledger.evict(old.id)])
    assert node.used == 150, "only what nothing else uses went"
    node.end([node.ledger.evict(new.id)])
    assert node.used == 0


def test_what_a_guarded_generation_shares_is_not_evictable() -> None:
    node = Node(200)
    old = node.put("old", 100, 40)
    base = max(old.blobs, key=lambda one: one.bytes)
    new = node.put("new", 10, shared=[base], links=[old.id])
    node.pin("h", "new")
    usage = node.ledger.usage()
    assert (usage.pinned, usage.evictable) == (110, 40)
    with pytest.raises(Blocked):
        node.put("other", 91)
    node.put("other", 90)
    assert node.evicted == ["old"]
    assert node.ledger.generation(new.id) is new


def test_a_link_keeps_what_it_links_to_while_it_arrives() -> None:
    node = Node(200)
    old = node.put("llama-70b", 140)
    reservation = node.ledger.reserve(LLAMA, 40, links=[old.id])
    with pytest.raises(InUse):
        node.ledger.evict(old.id)
    with pytest.raises(Blocked) as blocked:
        node.ledger.reserve(Key("other"), 100)
    assert blocked.value.reason == "pins"
    assert node.ledger.release(reservation) == []
    node.ledger.evict(old.id)


def test_a_predecessor_kept_by_its_successors_links_alone_is_replaced() -> None:
    node = Node(300)
    old = node.put("llama-70b", 100, 40)
    base = max(old.blobs, key=lambda one: one.bytes)
    node.put("llama-70b", 45, shared=[base], links=[old.id])
    assert node.evicted == ["llama-70b"]
    assert node.ledger.generation(old.id) is None
    assert node.used == 145


def test_a_retired_generation_kept_by_links_alone_leaves_with_them() -> None:
    node = Node(400)
    old = node.pin("h", node.put("llama-70b", 100).id.key.name)
    node.put("llama-70b", 100)
    reservation = node.ledger.reserve(Key("tuned"), 40, links=[old.id])
    assert node.ledger.unpin("h", LLAMA, 50.0)[1] == []
    assert node.ledger.grant(reservation)
    succession = node.ledger.commit(reservation, "t", old.blobs, 60.0)
    assert [one.id for one in succession.left] == [old.id]
    assert succession.left[0].bytes == 0, "its blob lives on in the newcomer"
    node.end(succession.left)
    assert node.used == 200


def test_a_refused_arrival_lets_go_of_nothing_by_its_links() -> None:
    """Not of a retired generation either, which stayed because it was in use a moment ago."""
    node = Node(300)
    old = node.ledger.load(GenerationId(LLAMA, "old"), (), retired=True, last_used=0.0, hits=0)
    before = snapshot(node.ledger)
    with pytest.raises(ValueError, match="never fit"):
        node.ledger.reserve(LLAMA, 400, links=[old.id])
    assert snapshot(node.ledger) == before
    assert node.ledger.generation(old.id) is old


def test_a_plan_frees_a_shared_blob_only_with_all_that_use_it() -> None:
    node = Node(200)
    old = node.put("old", 100, 20)
    base = max(old.blobs, key=lambda one: one.bytes)
    new = node.put("new", 20, shared=[base], links=[old.id])
    node.put("idle-last", 60)
    assert node.used == 200
    assert [one.id.key.name for one in node.ledger.plan(None, 20)] == ["old"]
    assert [one.id.key.name for one in node.ledger.plan(None, 21)] == ["old", "new"]
    assert [one.id.key.name for one in node.ledger.plan(new.id.key, 21)] == ["new", "old"]
    assert [one.id.key.name for one in node.ledger.plan(None, 141)] == ["old", "new", "idle-last"]


def test_a_blob_is_retired_when_nothing_resident_uses_it() -> None:
    node = Node(300)
    old = node.pin("h", node.put("llama-70b", 100, 40).id.key.name)
    base = max(old.blobs, key=lambda one: one.bytes)
    node.put("llama-70b", 10, shared=[base], links=[old.id])
    usage = node.ledger.usage()
    assert (usage.resident, usage.retired) == (110, 40)
    node.put("llama-70b", 20)
    usage = node.ledger.usage()
    assert (usage.resident, usage.retired) == (20, 140)
    audit(node.ledger)


def test_a_guarded_predecessor_is_no_victim_of_its_successor() -> None:
    node = Node(300)
    old = node.pin("h", node.put("llama-70b", 100).id.key.name)
    node.put("mixtral", 150)
    assert [one.id.key.name for one in node.ledger.plan(LLAMA, 100)] == ["mixtral"]
    node.put("llama-70b", 100)
    assert node.evicted == ["mixtral"]
    assert old.standing is Standing.RETIRED


def test_a_doomed_blob_counts_until_its_last_name_is_gone() -> None:
    """Whichever of its names is unlinked last."""
    node = Node(200)
    old = node.put("old", 100, 20)
    base = max(old.blobs, key=lambda one: one.bytes)
    new = node.put("new", 10, shared=[base], links=[old.id])
    first, second = node.ledger.evict(old.id), node.ledger.evict(new.id)
    assert (first.bytes, second.bytes) == (20, 110)
    node.ledger.evicted([first, second])
    for _ in range(2):
        node.ledger.freed(second)
        assert node.ledger.usage().doomed == 120, "the other one still names the base"
    node.ledger.freed(first, 5)
    assert node.ledger.usage().doomed == 115
    node.ledger.freed(first)
    assert node.ledger.usage().doomed == 0
    audit(node.ledger)


def test_a_blob_that_comes_back_is_doomed_no_more() -> None:
    node = Node(200)
    old = node.put("old", 100, 20)
    base = max(old.blobs, key=lambda one: one.bytes)
    new = node.put("new", 10, shared=[base], links=[old.id])
    first, second = node.ledger.evict(old.id), node.ledger.evict(new.id)
    node.ledger.evicted([second])
    node.ledger.refused([first], [old.id])
    usage = node.ledger.usage()
    assert (usage.resident, usage.doomed) == (120, 10)
    node.ledger.freed(second)
    assert node.used == 120
    audit(node.ledger)
