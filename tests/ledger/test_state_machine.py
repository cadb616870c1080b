"""The ledger against the naive books, by whatever sequence of acts Hypothesis finds.

Two callers drive it.  The careful one waits while a victim is settling before
it reserves, and then no promise may ever pass the budget.  The hasty one does
not; a refusal may then take back bytes that were promised meanwhile, and only
the disk's sum holds.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from tests.ledger.acts_holding import Holding
from tests.ledger.acts_parking import Parking
from tests.ledger.audit import audit
from tests.ledger.caller import KEYS
from tests.tiers import THOROUGH
from weightd.ledger import Standing


class CarefulCaller(Parking, Holding):
    @invariant()
    def the_sums_are_the_naive_ones(self) -> None:
        usage, naive = self.ledger.usage(), self.naive
        assert usage.resident == naive.resident
        assert usage.retired == naive.occupied - naive.resident
        assert usage.pinned == naive.kept
        assert usage.evictable == naive.occupied - naive.kept + naive.left
        assert usage.parked == naive.left
        assert (usage.reserved, usage.written) == (naive.reserved, naive.written)
        assert usage.doomed == naive.doomed
        assert usage.arrivals == len(naive.promises)
        assert usage.pins == sum(len(copy.pins) for copy in naive.copies)
        assert self.ledger.pins_known == naive.pins_known
        assert self.ledger.settling == bool(naive.leaving())
        assert usage.used == naive.occupied + naive.written + naive.left + naive.doomed
        assert usage.free == max(0, naive.capacity - naive.promised)
        assert usage.over_budget == max(0, naive.promised - naive.capacity)

    @invariant()
    def the_generations_stand_where_the_naive_ones_do(self) -> None:
        naive = self.naive
        assert {one.id for one in self.ledger.generations()} == {one.id for one in naive.copies}
        assert [one.id for one in self.ledger.idle_first()] == [
            one.id for one in naive.idle_first()
        ]
        assert set(self.ledger.keys()) == {one.id.key for one in naive.idle_first()}
        for copy in naive.copies:
            generation = self.ledger.generation(copy.id)
            assert generation is not None
            assert generation.guarded == naive.guarded(copy)
            assert (generation.standing is Standing.RETIRED) == copy.retired
            assert {h: pin.until for h, pin in generation.pins.items()} == copy.pins
            assert generation.last_used == copy.last_used
        leaving = {one.copy.id.key for one in naive.leaving()}
        assert {key for key in KEYS if self.ledger.leaving(key)} == leaving

    @invariant()
    def nobody_is_answered_an_older_generation(self) -> None:
        for key in KEYS:
            current = self.ledger.current(key)
            assert current is None or current.id == self.naive.latest[key].id

    @invariant()
    def content_is_found_where_it_is(self) -> None:
        here = self.naive.content()
        for (sha256, size), holders in here.items():
            found = self.ledger.find_blob(sha256, size)
            assert found is not None
            id, blob = found
            assert id in holders
            assert blob in self.naive.find(id).blobs
            assert (blob.sha256, blob.bytes) == (sha256, size)
        for gone in self.naive.gone:
            for blob in gone.copy.blobs:
                if (blob.sha256, blob.bytes) not in here:
                    assert self.ledger.find_blob(blob.sha256, blob.bytes) is None

    @invariant()
    def rule_1_holds(self) -> None:
        """Neither sum passes the budget, or rises once it is over it."""
        naive = self.naive
        promised, on_disk = naive.promised, naive.on_disk
        assert promised <= max(naive.capacity, self.promised_most), "promised"
        assert on_disk <= max(naive.capacity, self.on_disk_most), "on disk"
        self.promised_most, self.on_disk_most = promised, on_disk
        settling = bool(naive.leaving())
        self.promised_before_settling = max(
            promised, self.promised_before_settling if settling else 0
        )

    @invariant()
    def the_books_agree_with_themselves(self) -> None:
        audit(self.ledger)


class HastyCaller(CarefulCaller):
    careful = False


@pytest.mark.timeout(3600 if THOROUGH else 600)  # shrinking a failure takes minutes
@pytest.mark.parametrize("caller", [CarefulCaller, HastyCaller])
def test_the_ledger_keeps_the_naive_books(caller: type[CarefulCaller]) -> None:
    run_state_machine_as_test(
        caller,
        settings=settings(
            max_examples=4000 if THOROUGH else 60,
            stateful_step_count=80 if THOROUGH else 50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
