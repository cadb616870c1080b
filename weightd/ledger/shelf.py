"""What stands on disk: every generation, its standing, and the bytes it comes to.

The moves of a generation (`generations.MOVES`) are made here and nowhere else,
each together with its entries in the blob table, the order of eviction and the
doomed, so that the sums cannot part from what they sum up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from weightd.ledger.blobs import BlobTable
from weightd.ledger.contents import Contents
from weightd.ledger.currents import Currents
from weightd.ledger.entries import Doomed, Remains, Succession
from weightd.ledger.generations import Generation, IllegalMove, Standing
from weightd.ledger.policy import Policy
from weightd.model import Blob, GenerationId, Key


class Shelf:
    """Resident, retired and leaving generations, and the doomed bytes of those that left."""

    def __init__(self, policy: Policy) -> None:
        self.blobs = BlobTable()
        self.contents = Contents()
        self.remains: set[Remains] = set()
        self._debris = 0
        self._freed = 0
        self.leaving: dict[Key, list[Doomed]] = {}
        self.generations: dict[GenerationId, Generation] = {}
        self.current = Currents()
        self._retired: dict[GenerationId, Generation] = {}
        self._policy = policy

    @property
    def doomed_bytes(self) -> int:
        """Bytes that nobody can reach and that are still on disk."""
        return self.blobs.doomed - self._freed + self._debris

    def known(self, id: GenerationId) -> Generation:
        """The resident or retired generation ``id``.  Raises IllegalMove when there is none."""
        generation = self.generations.get(id)
        if generation is None:
            raise IllegalMove(f"{id} is not in the books")
        return generation

    def must_be_new(self, id: GenerationId) -> None:
        """Raises IllegalMove when ``id`` stands here, or may come back from a refused eviction."""
        if id in self.generations or any(one.id == id for one in self.leaving.get(id.key, ())):
            raise IllegalMove(f"{id} is in the books already")

    def idle_first(self) -> Iterator[Generation]:
        """Every resident generation in order of eviction, guarded ones included."""
        for id in self._policy.order():
            generation = self.generations.get(id)
            if generation is not None:
                yield generation

    def unkept(self) -> Iterator[Generation]:
        """Retired generations that nothing keeps: refused, or superseded, as they left."""
        return (one for one in self._retired.values() if not one.guarded)

    def evictable(self) -> Iterator[Generation]:
        """What may go, in order: retired generations that nothing keeps, then the idlest."""
        yield from self.unkept()
        for generation in self.idle_first():
            if not generation.guarded:
                yield generation

    # -- Coming ----------------------------------------------------------------

    def add(self, generation: Generation) -> None:
        """Put up a new generation; `succeed` makes it the current one of its key."""
        self.must_be_new(generation.id)
        self._stand(generation)

    def restore(self, generation: Generation) -> None:
        """Take a retired generation back; `succeed` makes it current again."""
        if generation.damaged:
            raise IllegalMove(f"{generation.id} is damaged")
        generation.move(Standing.RESIDENT)
        del self._retired[generation.id]
        self.blobs.change(generation.blobs, retired=-1)

    def load(self, generation: Generation, *, retired: bool) -> None:
        """Put up a generation found on disk; the idlest first."""
        self.must_be_new(generation.id)
        if not retired:
            if generation.id.key in self.current:
                raise IllegalMove(f"{generation.id.key} has a current generation already")
            self.current[generation.id.key] = generation
            self._policy.used(generation.id)
        self._stand(generation)
        if retired:
            self._retire(generation)

    def _stand(self, generation: Generation, *, doomed: int = 0) -> None:
        self.generations[generation.id] = generation
        self.blobs.change(generation.blobs, total=1, doomed=-doomed)
        self.contents.enter(generation)

    def rebind(self, generation: Generation, blobs: tuple[Blob, ...]) -> None:
        """Correct the blobs of a generation to what its files turned out to be."""
        retired = int(generation.standing is Standing.RETIRED)
        guarded = int(generation.guarded)
        self.blobs.change(generation.blobs, total=-1, retired=-retired, guarded=-guarded)
        self.contents.remove(generation)
        generation.rebind(blobs)
        self.blobs.change(generation.blobs, total=1, retired=retired, guarded=guarded)
        self.contents.enter(generation)

    def succeed(self, generation: Generation, left: Iterable[Doomed] = ()) -> Succession:
        """Make ``generation`` current; what was current is retired while it is guarded.

        A predecessor that is leaving is superseded too, should it be refused.
        """
        key = generation.id.key
        previous = self.current.get(key)
        self.current[key] = generation
        self._policy.used(generation.id)
        retired = replaced = None
        if previous is not None and previous.guarded:
            self._retire(previous)
            retired = previous
        elif previous is not None:
            replaced = self.leave(previous)
        for doomed in self.leaving.get(key, ()):
            doomed.superseded = True
        return Succession(generation, retired, replaced, tuple(left))

    def _retire(self, generation: Generation) -> None:
        generation.move(Standing.RETIRED)
        self._retired[generation.id] = generation
        self.blobs.change(generation.blobs, retired=1)
        self._policy.forget(generation.id)

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
        ended = self.book_guard(generation, change)
        return self.leave_if_done(generation) if ended else None

    def book_guard(self, generation: Generation, change: Callable[[], None]) -> bool:
        """As `guard`, but let nothing go; answers whether the last guard ended."""
        before = generation.guarded
        change()
        after = generation.guarded
        if before != after:
            self.blobs.change(generation.blobs, guarded=int(after) - int(before))
        return before and not after

    def leave_if_done(self, generation: Generation) -> Doomed | None:
        """Let a retired generation go that nothing keeps."""
        if generation.guarded or generation.standing is not Standing.RETIRED:
            return None
        return self.leave(generation)

    # -- Going -----------------------------------------------------------------

    def leave(self, generation: Generation) -> Doomed:
        """Take a generation out of reach; the bytes that only it used are doomed."""
        was = generation.standing
        generation.move(Standing.LEAVING)
        retired = int(was is Standing.RETIRED)
        gone = self.blobs.change(generation.blobs, total=-1, retired=-retired, doomed=1)
        self.contents.remove(generation)
        del self.generations[generation.id]
        self._retired.pop(generation.id, None)
        if self.current.get(generation.id.key) is generation:
            del self.current[generation.id.key]
        doomed = Doomed(gone, generation, was)
        self.leaving.setdefault(generation.id.key, []).append(doomed)
        self.remains.add(doomed)
        return doomed

    def withdraw(self, generation: Generation) -> Doomed | None:
        """Answer a damaged generation no more; it leaves, or is retired while it is guarded."""
        generation.damaged = True
        self.contents.remove(generation)
        if not generation.guarded:
            return self.leave(generation)
        if generation.standing is Standing.RESIDENT:
            self._retire(generation)
            del self.current[generation.id.key]
        return None

    def settle(self, doomed: Doomed) -> None:
        """The victim is out of reach on disk too, and will not come back."""
        self._no_longer_leaving(doomed)
        doomed.settled = True
        self._policy.forget(doomed.id)

    def come_back(self, doomed: Doomed) -> bool:
        """Put a refused victim back where it stood; answers whether it was superseded meanwhile."""
        self._no_longer_leaving(doomed)
        self.remains.discard(doomed)
        generation = doomed.generation
        generation.move(Standing.RESIDENT)
        self._stand(generation, doomed=1)
        was_resident = doomed.was is Standing.RESIDENT
        if was_resident and not doomed.superseded and not generation.damaged:
            self.current[doomed.id.key] = generation
            return False
        self._retire(generation)
        return was_resident

    def _no_longer_leaving(self, doomed: Doomed) -> None:
        """Raises IllegalMove when the victim was evicted, or refused, before."""
        leaving = self.leaving.get(doomed.id.key, [])
        if doomed not in leaving:
            raise IllegalMove(f"{doomed.id} is not about to leave")
        leaving.remove(doomed)
        if not leaving:
            del self.leaving[doomed.id.key]

    def leave_debris(self, size: int) -> Remains:
        """Count bytes that never belonged to a generation."""
        remains = Remains(size)
        self.remains.add(remains)
        self._debris += size
        return remains

    def take_back(self, remains: Remains) -> None:
        """They stay after all.  Raises IllegalMove when some of them have left the disk."""
        if remains not in self.remains or isinstance(remains, Doomed):
            raise IllegalMove("what was dropped is gone")
        self.remains.discard(remains)
        self._debris -= remains.bytes

    def freed(self, remains: Remains, size: int | None) -> None:
        """``size`` doomed bytes have left the disk (None: the rest of them, and all names).

        A blob that another doomed generation still names stays counted until that one goes.
        """
        if remains not in self.remains:
            return
        gone = remains.bytes if size is None else min(size, remains.bytes)
        remains.bytes -= gone
        if not isinstance(remains, Doomed):
            self._debris -= gone
        elif size is None:
            self._freed -= remains.freed
            self.blobs.change(remains.generation.blobs, doomed=-1)
        else:
            self._freed += gone
            remains.freed += gone
        if size is None:
            self.remains.discard(remains)
