"""How an option's value is taken from text, or from what the TOML file has for it.

A reader that raises without words leaves them to the option's own form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BeforeValidator

from weightd.settings import values

T = TypeVar("T")


def read_text(parse: Callable[[str], T]) -> BeforeValidator:
    """Parse text; a number from the file is read as the text it was written as."""

    def taken(given: object) -> object:
        if isinstance(given, str):
            return parse(given)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return parse(str(given))
        raise ValueError

    return BeforeValidator(taken)


def read_mode(parse: Callable[[str], int]) -> BeforeValidator:
    """Parse the text of a mode; a bare number would not say whether it is octal."""

    def taken(given: object) -> object:
        if isinstance(given, str):
            return parse(given)
        raise ValueError(f'{given!r} is not text; write the mode in quotes, such as "0660"')

    return BeforeValidator(taken)


def _switch(given: object) -> object:
    """A switch of the file is a TOML boolean, or text as a variable has it."""
    if isinstance(given, str):
        return values.parse_yes_or_no(given)
    if isinstance(given, bool):
        return given
    raise ValueError


read_switch = BeforeValidator(_switch)


def read_list(parse: Callable[[Sequence[str]], T]) -> BeforeValidator:
    """Parse a list of the file, or text in which commas separate."""

    def taken(given: object) -> object:
        items = _items(given) if isinstance(given, str) else given
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError
        return parse(items)

    return BeforeValidator(taken)


def _credentials(given: object) -> object:
    """A table of the file, or text such as ``name=path,name=path``."""
    if isinstance(given, str):
        pairs = [item.partition("=") for item in _items(given)]
        given = {name.strip(): path.strip() for name, _, path in pairs}
        if len(given) < len(pairs):
            raise ValueError(f"a name is there twice; give {values.CREDENTIALS_FORM}")
    if not isinstance(given, dict):
        raise ValueError
    return values.parse_credentials(given)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _number(given: object) -> object:
    if isinstance(given, bool):
        raise ValueError
    return given


def _lower(given: object) -> object:
    return given.lower() if isinstance(given, str) else given


read_credentials = BeforeValidator(_credentials)
read_number = BeforeValidator(_number)
read_lower = BeforeValidator(_lower)
