"""A cache over a real directory, and what must be true of it whenever it is quiet."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tests.api.origin import Origin
from tests.cache.doubles import PATIENCE, FakeClock, HeldWorkers, Hold, Whole, bytes_of, tar_of
from tests.ledger.audit import audit
from tests.store.support import begun
from weightd.cache import Options, PutOutcome, PutTerms, WeightCache
from weightd.failpoints import Reach, unarmed
from weightd.ledger import Usage
from weightd.model import Key
from weightd.store import Store, pages
from weightd.store.arrival import OWN_NAMES

T = TypeVar("T")

LOOPS = {
    *("unlink", "lapse", "flush", "check", "sweep", "name", "hurry", "trim", "mark"),
    *("let damaged go", "accept later", "forget", "fetches", "uploads"),
}

BLOCK = 4096

OVERHEAD = ("manifest.json", "superseded", "damaged", *OWN_NAMES)

STILL = Options(
    check_interval=3600.0,
    flush_interval=3600.0,
    sweep_interval=3600.0,
    hurry_interval=3600.0,
    trim_interval=3600.0,
    upload_interval=3600.0,
    unlink_retry=0.05,
    grant_timeout=PATIENCE,
    heartbeat=3600.0,
)
"""Nothing goes on by itself, so that a test says when."""


class Node:
    """One root and the cache that runs on it; may be closed and opened again."""

    origin: Origin
    """What it fetches from, where a test gave it one."""

    def __init__(
        self,
        root: Path,
        capacity: int,
        *,
        clock: FakeClock | None = None,
        options: Options = STILL,
        reach: Reach = unarmed,
        min_free: int = 0,
        boot_id: str = "boot-1",
    ) -> None:
        self.root = root
        self.capacity = capacity
        self.clock = FakeClock() if clock is None else clock
        self.options = options
        self.reach = reach
        self.min_free = min_free
        self.boot_id = boot_id
        self.store: Store
        self.cache: WeightCache
        self.workers: HeldWorkers

    # -- Life ------------------------------------------------------------------

    async def open(self) -> WeightCache:
        self.prepare(await asyncio.to_thread(Store.open, self.root, reach=self.reach))
        await self.cache.start()
        return self.cache

    def prepare(self, store: Store) -> None:
        """Make the cache without starting it."""
        self.store = store
        assert store.block == BLOCK
        self.cache = WeightCache(
            store,
            capacity=self.capacity,
            min_free=self.min_free,
            boot_id=self.boot_id,
            clock=self.clock,
            reach=self.reach,
            options=self.options,
        )
        context = self.cache._context
        self.workers = HeldWorkers(context.workers)
        context.workers = self.workers  # type: ignore[assignment]

    async def close(self) -> None:
        await self.cache.close()
        self.store.close()
        left = [one.name for one in threading.enumerate() if one.name.startswith("weightd")]
        assert not left, f"threads left: {left}"

    async def restart(self, **changes: object) -> WeightCache:
        """Close and open again, with some of the node's attributes changed."""
        await self.close()
        for name, value in changes.items():
            setattr(self, name, value)
        return await self.open()

    # -- Doing -----------------------------------------------------------------

    async def put(
        self, key: str, size: int, seed: object = None, *, tick: float = 1.0, **terms: object
    ) -> PutOutcome:
        """Put ``size`` bytes that depend on the seed, by default the key, as one file."""
        self.clock.advance(tick)
        data = bytes_of(key if seed is None else seed, size)
        all_terms = {"length": size, **terms}
        return await self.cache.put(
            Key.parse(key),
            Whole(data),
            PutTerms(**all_terms),  # type: ignore[arg-type]
        )

    async def put_tar(self, key: str, files: Mapping[str, bytes]) -> PutOutcome:
        self.clock.advance(1.0)
        data = tar_of(files)
        return await self.cache.put(
            Key.parse(key), Whole(data), PutTerms(length=len(data), archive=True)
        )

    async def get(self, key: str) -> Path:
        self.clock.advance(1.0)
        return (await self.cache.get(Key.parse(key))).path

    # -- Looking ---------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        return self.cache.audit().usage()

    def resident(self) -> list[str]:
        """The resident keys, sorted."""
        return sorted(str(key) for key in self.cache.audit().keys())  # noqa: SIM118 - no dict

    def idle_first(self) -> list[str]:
        return [str(one.id.key) for one in self.cache.audit().idle_first()]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that a change of the ledger brings about."""
        changed = self.cache._context.changed
        while not condition():
            assert await changed.wait(PATIENCE), "nothing changed any more"

    async def quiet(self) -> None:
        """Wait until nothing arrives but uploads, leaves or waits to be unlinked."""
        ledger = self.cache.audit()
        await self.only_loops()

        def still() -> bool:
            # What is left of a victim stands in the books until its directory is gone too.
            arriving = ledger.usage().reserved != self.promised
            return not (ledger._shelf.remains or arriving or ledger.settling)

        await self.until(still)
        await self.workers._inner.disk(_nothing)

    @property
    def promised(self) -> int:
        """The bytes promised to uploads, which go on when all is quiet."""
        return sum(one.reservation.bytes for one in self.cache.uploads._uploads.values())

    async def only_loops(self) -> None:
        """Wait until the cache runs no task but those that go on for as long as it does."""
        tasks = self.cache._context.tasks._running
        while others := {task for task in tasks if task.get_name() not in LOOPS}:
            await asyncio.wait(others)

    async def agree(self) -> None:
        """Books and disk say the same once all is quiet, and nothing lies about.

        What was uploaded was looked at since.
        """
        await self.quiet()
        audit(self.cache.audit())
        usage, uploads = self.usage, [one.id for one in self.cache.uploads.views()]
        assert usage.reserved == self.promised
        assert usage.arrivals == len(uploads)
        partials = [one.stored.id for one in self.cache._context.partials]
        assert sorted(os.listdir(self.root / "incoming")) == sorted(partials + uploads)
        assert os.listdir(self.root / "doomed") == []
        held, files = occupied(self.root)
        booked = usage.resident + usage.retired + usage.parked + usage.written
        # The tree of a file's extents may take blocks beside those of its bytes.
        assert booked <= held <= booked + files * BLOCK, (booked, held)

    async def ask_again(self) -> None:
        """What goes on by itself, and often, for models that were seen in use."""
        upkeep = self.cache._upkeep
        assert upkeep is not None
        await upkeep._sweep.look_again()

    async def sweep(self) -> None:
        """Look for use that the kernel knows, at every model."""
        await self.cache._sweep.sweep()
        await self.cache._sweep.name()

    def manifests(self) -> list[Path]:
        return sorted((self.root / "models").glob("*/manifest.json"))


def _nothing() -> None:
    return


@asynccontextmanager
async def running(root: Path, capacity: int, **more: object) -> AsyncIterator[Node]:
    """A node that is closed in the end, after a look whether books and disk agree."""
    node = Node(root, capacity, **more)  # type: ignore[arg-type]
    await node.open()
    try:
        yield node
        await node.agree()
    finally:
        await node.close()


async def leave_partial(root: Path, key: str, blocks: int, age: float) -> None:
    """Make what a run that ended ``age`` seconds ago had of a file of twice the size."""
    await asyncio.to_thread(_leave_partial, root, key, blocks, FakeClock().now() - age)


def _leave_partial(root: Path, key: str, blocks: int, at: float) -> None:
    with Store.open(root) as store:
        ingest = begun(store, Key(key))
        ingest.note(b"{}")
        part = ingest.part(
            "w", 2 * blocks * BLOCK, claim=lambda size: None, wrote=lambda size: None
        )
        part.write(0, memoryview(bytes_of(key, blocks * BLOCK)))
        parked = ingest.park()
    assert parked.bytes == blocks * BLOCK
    place = root / "incoming" / parked.id
    for path in (*place.rglob("*"), place):
        os.utime(path, (at, at))


def occupied(root: Path) -> tuple[int, int]:
    """The bytes of blocks of all content below the root, an inode once, and how many files.

    Manifests, marks of retirement and what an arrival says of itself are overhead and
    counted for nobody.
    """
    seen: dict[int, int] = {}
    for place in ("models", "incoming", "doomed"):
        _walk(root / place, 0, seen)
    return sum(seen.values()) * 512, len(seen)


def _walk(directory: Path, depth: int, seen: dict[int, int]) -> None:
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            _walk(Path(entry.path), depth + 1, seen)
        elif depth != 1 or entry.name not in OVERHEAD:
            seen[status.st_ino] = status.st_blocks


async def decides_between_batches(node: Node, first: Hold, batch: int) -> None:
    """While all that is retired leaves, ``batch`` at a time, an admission is decided in between.

    ``first`` holds the first seizure.  However slow the filesystem tells what it has, nothing
    else is named until then.
    """
    ledger, many = node.cache.audit(), node.usage.retired_models
    await soon(first.met.wait())
    deciding = asyncio.create_task(node.cache.admission(BLOCK))
    await node.workers.disk(_nothing)
    assert not deciding.done()
    assert len(ledger._shelf.leaving) == batch
    looking = node.workers.arm("filesystem", after=False)
    first.let_go()
    await soon(looking.met.wait())
    for _ in range(5):
        await node.workers.disk(_nothing)
    assert not ledger.settling
    assert node.usage.retired_models == many - batch
    looking.let_go()
    await soon(deciding)


async def soon(work: Awaitable[T]) -> T:
    """Await what should end at once; fail rather than hang."""
    async with asyncio.timeout(PATIENCE):
        return await work


def in_memory(model: Path) -> dict[str, int]:
    """How many bytes of each of a model's files are in the page cache."""
    found = {}
    for path in (one for one in sorted(model.rglob("*")) if one.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            found[str(path.relative_to(model))] = pages.cached(descriptor, 0, path.stat().st_size)
        finally:
            os.close(descriptor)
    return found
