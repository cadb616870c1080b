"""A journal that leaves the machine line by line, and comes back whole at the next boot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tests.system.journal import Journal
from tests.system.load import KEYS, SIZES, shared_contents
from tests.system.models import Content, directory, single

SEEDS = 3
CLIENTS_MOST = 3


class Told(dict[Any, Any]):
    """A journal's table that says each change before it is relied on."""

    def __init__(self, say: Callable[..., None], table: str, known: Mapping[Any, Any]) -> None:
        super().__init__(known)
        self._say = say
        self._table = table

    def __setitem__(self, name: Any, allowed: Any) -> None:
        may = [one.digest if isinstance(one, Content) else one for one in allowed]
        self._say(table=self._table, name=name, may=may)
        super().__setitem__(name, allowed)


@cache
def contents() -> dict[str, Content]:
    """Everything that a worker ever puts, by digest."""
    found = shared_contents()
    for client in range(CLIENTS_MOST):
        for number in range(KEYS):
            key = f"client-{client}/model-{number}"
            for size in SIZES:
                for seed in range(SEEDS):
                    for make in (single, directory):
                        content = make(key, size, seed)
                        found[content.digest] = content
    return found


def restored(known: Mapping[str, Any]) -> Journal:
    """The journal that the lines of earlier lives come to."""
    journal = Journal()
    journal.contents |= contents()
    for key, may in known["models"].items():
        journal.models[key] = {None if one is None else contents()[one] for one in may}
    for holder, key, may in known["pins"]:
        journal.pins[holder, key] = set(may)
    return journal
