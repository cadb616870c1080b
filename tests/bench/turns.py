"""In which order everybody takes a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def order(everybody: Sequence[T], number: int) -> list[T]:
    """The order of a round: each time another is first, and every second time it is backwards.

    Whoever comes second finds the disk as the first left it; so nobody always
    comes after the same one.

    >>> [order("abc", number) for number in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['c', 'a', 'b']]
    """
    first = number % len(everybody)
    turns = [*everybody[first:], *everybody[:first]]
    return turns if number % 2 == 0 else turns[::-1]
