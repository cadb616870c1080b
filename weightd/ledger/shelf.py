"""What stands on disk: every generation, its standing, and the bytes it comes to.

The moves of a generation (`generations.MOVES`) are made here and nowhere else,
each together with its entries in the blob table, the order of eviction and the
doomed, so that the sums cannot part from what they sum up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weightd.ledger.blobs import BlobTable
from weightd.ledger.entries import Doomed, Succession
from weightd.ledger.generations import Generation, IllegalMove, Standing
from weightd.ledger.policy import Policy
from weightd.model import Blob, GenerationId, Key


class Shelf:
    """Resident, retired and leaving generations, and the doomed bytes of those that left."""

    def __init__(self, policy: Policy) -> None:
        self.blobs = BlobTable()
        self.doomed: set[Doomed] = set()
        self.doomed_bytes = 0
        self.generations: dict[GenerationId, Generation] = {}
        self.current: dict[Key, Generation] = {}
        self._policy = policy

    def known(self, id: GenerationId) -> Generation:
        """The resident or retired generation ``id``.  Raises IllegalMove when there is none."""
        generation = self.generations.get(id)
        if generation is None:
            raise IllegalMove(f"{id} is not in the books")
        return generation

    def must_be_new(self, id: GenerationId) -> None:
        """Raises IllegalMove when ``id`` stands here, or may come back from a refused eviction."""
        if id in self.generations or any(one.id == id for one in self.doomed if not one.settled):
            raise IllegalMove(f"{id} is in the books already")

    def idle_first(self) -> Iterator[Generation]:
        """Every resident generation in order of eviction, guarded ones included."""
        for id in self._policy.order():
            generation = self.generations.get(id)
            if generation is not None:
                yield generation

    def evictable(self) -> Iterator[Generation]:
        """What may go, in order: retired generations that nothing keeps, then the idlest."""
        for generation in self.generations.values():
            if generation.standing is Standing.RETIRED and not generation.guarded:
                yield generation
        for generation in self.idle_first():
            if not generation.guarded:
                yield generation

    # -- Coming ----------------------------------------------------------------

    def add(self, generation: Generation) -> Succession:
        """Put a new generation up as the current one of its key."""
        self.must_be_new(generation.id)
        self.generations[generation.id] = generation
        self.blobs.change(generation.blobs, total=1)
        return self._succeed(generation)

    def restore(self, generation: Generation) -> Succession:
        """Make a retired generation the current one of its key again."""
        if generation.damaged:
            raise IllegalMove(f"{generation.id} is damaged")
        generation.move(Standing.RESIDENT)
        self.blobs.change(generation.blobs, retired=-1)
        return self._succeed(generation)

    def load(self, generation: Generation, *, retired: bool) -> None:
        """Put up a generation found on disk; the idlest first."""
        self.must_be_new(generation.id)
        if retired:
            generation.move(Standing.RETIRED)
        elif self.current.setdefault(generation.id.key, generation) is not generation:
            raise IllegalMove(f"{generation.id.key} has a current generation already")
        else:
            self._policy.used(generation.id)
        self.generations[generation.id] = generation
        self.blobs.change(generation.blobs, total=1, retired=int(retired))

    def rebind(self, generation: Generation, blobs: tuple[Blob, ...]) -> None:
        """Correct the blobs of a generation to what its files turned out to be."""
        retired = int(generation.standing is Standing.RETIRED)
        guarded = int(generation.guarded)
        self.blobs.change(generation.blobs, total=-1, retired=-retired, guarded=-guarded)
        generation.blobs = blobs
        self.blobs.change(blobs, total=1, retired=retired, guarded=guarded)

    def _succeed(self, generation: Generation) -> Succession:
        """Make ``generation`` current; what was current is retired while it is guarded."""
        key = generation.id.key
        previous = self.current.get(key)
        self.current[key] = generation
        self._policy.used(generation.id)
        if previous is None:
            return Succession(generation)
        if previous.guarded:
            previous.move(Standing.RETIRED)
            self.blobs.change(previous.blobs, retired=1)
            self._policy.forget(previous.id)
            return Succession(generation, retired=previous)
        return Succession(generation, replaced=self.leave(previous))

    # -- Staying ---------------------------------------------------------------

    def touch(self, generation: Generation, now: float) -> None:
        """Note a use at ``now``."""
        generation.last_used = now
        if generation.standing is Standing.RESIDENT:
            self._policy.used(generation.id)

    def guard(self, generation: Generation, change: Callable[[], None]) -> Doomed | None:
        """Apply ``change`` to what keeps a generation, and book the difference.

        Answers the generation as doomed when it was retired and nothing keeps it any more.
        """
        before = generation.guarded
        change()
        after = generation.guarded
        if before != after:
            self.blobs.change(generation.blobs, guarded=int(after) - int(before))
        if before and not after and generation.standing is Standing.RETIRED:
            return self.leave(generation)
        return None

    # -- Going -----------------------------------------------------------------

    def leave(self, generation: Generation) -> Doomed:
        """Take a generation out of reach; the bytes that only it used are doomed."""
        was = generation.standing
        generation.move(Standing.LEAVING)
        retired = int(was is Standing.RETIRED)
        gone = self.blobs.change(generation.blobs, total=-1, retired=-retired)
        del self.generations[generation.id]
        if self.current.get(generation.id.key) is generation:
            del self.current[generation.id.key]
        doomed = Doomed(generation, gone, was)
        self.doomed.add(doomed)
        self.doomed_bytes += gone
        return doomed

    def withdraw(self, generation: Generation) -> Doomed | None:
        """Answer a damaged generation no more; it leaves, or is retired while it is guarded."""
        generation.damaged = True
        if not generation.guarded:
            return self.leave(generation)
        if generation.standing is Standing.RESIDENT:
            generation.move(Standing.RETIRED)
            self.blobs.change(generation.blobs, retired=1)
            self._policy.forget(generation.id)
            del self.current[generation.id.key]
        return None

    def settle(self, doomed: Doomed) -> None:
        """The victim is out of reach on disk too, and will not come back."""
        if not doomed.settled:
            doomed.settled = True
            if doomed.id not in self.generations:
                self._policy.forget(doomed.id)

    def come_back(self, doomed: Doomed) -> bool:
        """Put a refused victim back where it stood; answers whether it was superseded meanwhile."""
        if doomed.settled:
            raise IllegalMove(f"{doomed.id} has been evicted")
        generation, key = doomed.generation, doomed.id.key
        resident = (
            doomed.was is Standing.RESIDENT and key not in self.current and not generation.damaged
        )
        self.doomed.discard(doomed)
        self.doomed_bytes -= doomed.bytes
        generation.move(Standing.RESIDENT if resident else Standing.RETIRED)
        self.generations[doomed.id] = generation
        self.blobs.change(generation.blobs, total=1, retired=int(not resident))
        if resident:
            self.current[key] = generation
        else:
            self._policy.forget(doomed.id)
        return doomed.was is Standing.RESIDENT and not resident

    def freed(self, doomed: Doomed, size: int | None) -> None:
        """``size`` doomed bytes have left the disk (None: the rest of them)."""
        gone = doomed.bytes if size is None else min(size, doomed.bytes)
        doomed.bytes -= gone
        self.doomed_bytes -= gone
        if size is None:
            self.doomed.discard(doomed)
