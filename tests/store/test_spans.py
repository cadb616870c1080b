"""Spans are what a set of numbers says they are."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weightd.store.spans import Spans

SPAN = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda one: (min(one), max(one)))


@given(st.lists(st.tuples(st.booleans(), SPAN)), SPAN)
def test_spans_are_a_set(steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    spans, members = Spans(), set[int]()
    for adding, (start, stop) in steps:
        if adding:
            joined = spans.joined(start, stop)
            before = len(members)
            members.update(range(start, stop))
            assert spans.add(start, stop) == len(members) - before
            assert start == stop or joined in list(spans)
        else:
            members.difference_update(range(start, stop))
            spans.remove(start, stop)
        assert spans.total == len(members)
        assert {one for span in spans for one in range(*span)} == members
        assert all(start < stop for start, stop in spans)
        assert all(left[1] < right[0] for left, right in pairwise(spans))
    inside = {one for one in members if asked[0] <= one < asked[1]}
    assert {one for span in spans.within(*asked) for one in range(*span)} == inside
    assert {one for span in spans.gaps(*asked) for one in range(*span)} == (
        set(range(*asked)) - inside
    )
    reach = asked[0]
    while reach in members:
        reach += 1
    assert spans.reach(asked[0]) == reach
    copy = spans.copy()
    copy.add(0, 41)
    assert spans.total == len(members)
    copy.clear()
    assert not copy
