"""What an origin says of itself in JSON: bounded before it is made into objects."""

from __future__ import annotations

import json
from typing import Final

LENGTH_MAX: Final = 2**63 - 1
"""No file is longer, whatever is said of it."""

_MARKS: Final = b'{[",'


def read_json(body: bytes, marks_max: int) -> object:
    """The value that a body holds, which costs memory by its marks and not by its length.

    ``marks_max`` bounds the brackets, quotes and commas in it.  Raises
    ValueError, saying what it is instead of JSON that can be used.
    """
    if sum(body.count(mark) for mark in _MARKS) > marks_max:
        raise ValueError("it says more than any list of files")
    try:
        return json.loads(body, object_hook=_as_it_is)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is no JSON") from None


def _as_it_is(found: dict[str, object]) -> dict[str, object]:
    """A call for each object, in which other threads get their turn while a body is read."""
    return found


def is_length(value: object) -> bool:
    """Whether a number is one that a file can have bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LENGTH_MAX


def is_text(value: str) -> bool:
    """Whether it can be written down; JSON and old filesystems have strings that cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
