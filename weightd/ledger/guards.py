"""What keeps a generation besides its pins: readers, links, use, and doubt.

Pins are the business of `pins`.  Whatever the guard, its end lets a retired
generation go, and whoever ended it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from weightd.ledger.entries import Doomed
from weightd.ledger.generations import Generation, IllegalMove
from weightd.ledger.shelf import Shelf
from weightd.model import GenerationId


class Guards:
    """Raises and ends the guards of the generations on one shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._doubted: list[Generation] = []

    def read(self, id: GenerationId, readers: int) -> Doomed | None:
        """Count readers up or down.  Raises IllegalMove below none."""
        generation = self._shelf.known(id)
        if generation.readers + readers < 0:
            raise IllegalMove(f"{id} has {generation.readers} readers, not {-readers}")

        def add() -> None:
            generation.readers += readers

        return self._shelf.guard(generation, add)

    def mark_use(self, id: GenerationId, seen: bool) -> Doomed | None:
        """Note whether the kernel reports a use."""
        generation = self._shelf.known(id)

        def mark() -> None:
            generation.in_use = seen

        return self._shelf.guard(generation, mark)

    @contextmanager
    def linking(self, generations: Sequence[Generation]) -> Iterator[None]:
        """Link to ``generations``; if the arrival is refused they are as they were.

        A refusal lets nothing go, not even a retired generation that nothing else keeps.
        """
        self._link_all(generations, 1)
        try:
            yield
        except BaseException:
            self._link_all(generations, -1)
            raise

    @contextmanager
    def linked_meanwhile(self, generations: Sequence[Generation]) -> Iterator[None]:
        """Link to ``generations`` while a question is answered; lets nothing go."""
        self._link_all(generations, 1)
        try:
            yield
        finally:
            self._link_all(generations, -1)

    def forgo(self, generations: Iterable[Generation]) -> None:
        """End one link to each and let nothing go: `Ledger.over` names what nothing keeps."""
        self._link_all(generations, -1)

    def unlink(self, generations: Iterable[Generation]) -> list[Doomed]:
        """End one link to each; answers the retired ones that may now go."""
        left = []
        for generation in generations:
            self._link(generation, -1)
            doomed = self._shelf.leave_if_done(generation)
            if doomed is not None:
                left.append(doomed)
        return left

    def doubt(self) -> None:
        """Keep all that is here until `trust`."""
        for generation in self._shelf.generations.values():
            self._doubted.append(generation)
            self._set_doubt(generation, True)

    def trust(self) -> list[Doomed]:
        """End all doubt; answers the retired generations that may now go."""
        doubted, self._doubted = self._doubted, []
        doomed = [self._set_doubt(one, False) for one in doubted if one.doubted]
        return [one for one in doomed if one is not None]

    @property
    def doubted(self) -> bool:
        return bool(self._doubted)

    def _link_all(self, generations: Iterable[Generation], count: int) -> None:
        for generation in generations:
            self._link(generation, count)

    def _link(self, generation: Generation, count: int) -> None:
        def add() -> None:
            generation.links += count

        self._shelf.book_guard(generation, add)

    def _set_doubt(self, generation: Generation, doubted: bool) -> Doomed | None:
        def change() -> None:
            generation.doubted = doubted

        return self._shelf.guard(generation, change)


def use_of(generation: Generation) -> str:
    """What keeps a generation that nobody pins, in words."""
    if generation.readers:
        return (
            "its content is being read through weightd, or it is kept for a preload, or the end "
            "of a pin is being written down"
        )
    if generation.links:
        return "an arrival shares files with it"
    if generation.doubted:
        return "the record of its pins was lost (POST /v1/pins/accept-loss accepts that)"
    return "a process holds it, or has one of its files open or mapped"
