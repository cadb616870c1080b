"""In which order everybody takes a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def order(everybody: Sequence[T], number: int) -> list[T]:
    """The order of a round: every second time backwards, and every two rounds begun elsewhere.

    Whoever comes second finds the disk as the first left it; so nobody always
    comes after the same one.

    >>> ["".join(order("abc", number)) for number in range(4)]
    ['abc', 'cba', 'bca', 'acb']
    >>> ["".join(order("ab", number)) for number in range(4)]
    ['ab', 'ba', 'ba', 'ab']
    """
    first = number // 2 % len(everybody)
    turns = [*everybody[first:], *everybody[:first]]
    return turns if number % 2 == 0 else turns[::-1]
