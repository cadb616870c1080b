"""Every error: a code of its own, a sentence that says what to do, and its figures."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd import errors
from weightd.errors import Blocked, HolderFigures, NotResident, TooLarge, WeightdError

HOLDER = HolderFigures("replica-1", "llama-70b", 140, 0.0, None)
EXAMPLES: dict[str, Any] = {
    "holders": (HOLDER,),
    "hint": None,
    "declared": 10,
    "member": "a/b",
    "reason": "pins",
    "act": "pin",
}


def classes(base: type[WeightdError] = WeightdError) -> Iterator[type[WeightdError]]:
    for one in base.__subclasses__():
        if one.__module__.startswith(f"{errors.__name__}."):
            yield one
            yield from classes(one)


def test_every_error_is_to_be_had_from_the_package() -> None:
    assert {one.__name__ for one in classes()} <= set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)


ALL = sorted(set(classes()), key=lambda one: one.__name__)


def example(kind: type[WeightdError]) -> WeightdError:
    made = {}
    for field in dataclasses.fields(kind):
        number = str(field.type) in ("int", "float", "int | None")
        made[field.name] = EXAMPLES.get(field.name, 7 if number else "words")
    return kind(**made)


@pytest.mark.parametrize("kind", ALL)
def test_detail_is_whole_sentences(kind: type[WeightdError]) -> None:
    error = example(kind)
    assert error.detail.endswith(".")
    assert not re.search(r"\bNone\b", error.detail.replace("If-None-Match", ""))
    assert "\n" not in error.detail
    assert str(error) == error.detail


@pytest.mark.parametrize("kind", ALL)
def test_figures_are_the_attributes(kind: type[WeightdError]) -> None:
    error = example(kind)
    for name, figure in error.figures().items():
        assert getattr(error, name) == figure


@pytest.mark.parametrize("kind", ALL)
def test_a_copy_is_the_same_error_and_another_object(kind: type[WeightdError]) -> None:
    error = example(kind)
    copied = copy.copy(error)
    assert (type(copied), copied.detail) == (kind, error.detail)
    assert copied is not error
    assert copied.figures() == error.figures()


@pytest.mark.parametrize("kind", ALL)
def test_what_tells_when_to_come_back_may_be_tried_again(kind: type[WeightdError]) -> None:
    assert kind.retryable or kind.retry_after is None


def test_codes_tell_errors_apart() -> None:
    by_code: dict[str, list[str]] = {}
    for kind in ALL:
        by_code.setdefault(kind.code, []).append(kind.__name__)
    shared = {code: names for code, names in by_code.items() if len(names) > 1}
    # A body cut short has no peer left to answer; it is a bad request in the metrics alone.
    assert shared == {"invalid-request": ["IncompleteBody", "InvalidRequest"]}


def test_a_miss_too_large_and_blocked_are_three_things() -> None:
    builtin = {NotResident: KeyError, TooLarge: ValueError, Blocked: MemoryError}
    for kind, base in builtin.items():
        others = [other for other in builtin.values() if other is not base]
        assert issubclass(kind, base)
        assert not issubclass(kind, tuple(others))
    assert (TooLarge.retryable, Blocked.retryable) == (False, True)


@given(st.integers(1, 10**15), st.integers(0, 10**15))
def test_too_large_names_both_figures_exactly(size: int, capacity: int) -> None:
    assert f"({size} > {capacity} bytes)" in TooLarge(size, capacity).detail


@given(st.lists(st.sampled_from("abcdefghij"), max_size=10))
def test_blocked_names_the_holders_it_can(names: list[str]) -> None:
    holders = tuple(HolderFigures(name, "m", 1, 0.0, None) for name in names)
    detail = Blocked("pins", 1, 0, 0, 1, 0, holders).detail
    assert all(name in detail for name in names[:5])
    assert (f"and {len(names) - 5} more" in detail) == (len(names) > 5)


def test_every_reason_for_blocked_says_what_to_wait_for() -> None:
    advice = {
        reason: Blocked(reason, 1, 0, 0, 1, 0).detail
        for reason in ("pins", "arriving", "pins-unknown")
    }
    assert "drain" in advice["pins"]
    assert "arrivals under way" in advice["arriving"]
    assert "accept-loss" in advice["pins-unknown"]
