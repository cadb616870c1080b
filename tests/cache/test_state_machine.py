"""The cache over a real directory, step by step beside a naive model.

After every step, once all is quiet: the same models in the same order of
eviction, the same pins, and on disk the blocks that the books say.  The only
tolerance is the block that a file's extents may take beside its bytes (see
`Node.agree`).  A restart changes nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.cache.conftest import THOROUGH
from tests.cache.doubles import bytes_of
from tests.cache.naive import Copy, Naive
from tests.cache.node import BLOCK, Node, soon
from weightd.errors import WeightdError
from weightd.ledger import Generation, Standing
from weightd.model import Key

T = TypeVar("T")

CAPACITY = 12

keys = st.sampled_from(["a", "b", "org/c"])
holders = st.sampled_from(["one", "two"])
seeds = st.integers(0, 2)


def blocks_of(key: str, seed: int) -> int:
    """Each content has one size: some pairs fit, some do not, one never does."""
    return {"a": (2, 5, 3), "b": (4, 4, 7), "org/c": (1, 6, 13)}[key][seed]


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        place = memory if os.access(memory, os.W_OK) and not THOROUGH else None
        self.directory = tempfile.mkdtemp(prefix="weightd-", dir=place)
        self.runner = asyncio.Runner()
        self.node = Node(Path(self.directory) / "cache", CAPACITY * BLOCK)
        self.naive = Naive(CAPACITY)
        self.descriptors: dict[Copy, int] = {}
        self.do(self.node.open())

    def teardown(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.do(self.node.close())
        self.runner.close()
        shutil.rmtree(self.directory)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(soon(work))

    def answer(self, work: Coroutine[Any, Any, T]) -> T | str:
        """What came of it, or the code of the refusal."""
        try:
            return self.do(work)
        except WeightdError as error:
            return error.code

    # -- Rules -----------------------------------------------------------------

    @initialize()
    def fill(self) -> None:
        for key in ("a", "b", "org/c"):
            self.put(key, 0)

    @rule(key=keys, seed=seeds)
    def put_again(self, key: str, seed: int) -> None:
        """The same, so that it is done more often."""
        self.put(key, seed)

    @rule(key=keys, seed=seeds)
    def put(self, key: str, seed: int) -> None:
        size = blocks_of(key, seed)
        # One byte less is as many blocks.
        self.passes(1.0)
        answer = self.answer(self.node.put(key, size * BLOCK - 1, f"{key} {seed}", tick=0.0))
        expected = self.naive.put(key, seed, size)
        if isinstance(answer, str):
            assert answer == expected
        else:
            assert ("created" if answer.created else "same") == expected

    @rule(key=keys)
    def get(self, key: str) -> None:
        self.passes(1.0)
        answer = self.answer(self.node.cache.get(Key.parse(key)))
        copy = self.naive.get(key)
        if copy is None:
            assert answer == "not-resident"
        else:
            assert not isinstance(answer, str)
            data = (answer.path / key.rpartition("/")[2]).read_bytes()
            assert data == bytes_of(f"{key} {copy.seed}", copy.blocks * BLOCK - 1)

    @rule(holder=holders, key=keys, ttl=st.sampled_from([None, 20.0, 50.0]))
    def pin(self, holder: str, key: str, ttl: float | None) -> None:
        self.passes(1.0)
        answer = self.answer(self.node.cache.pin(holder, Key.parse(key), ttl=ttl))
        copy = self.naive.pin(holder, key, self.node.clock.now(), ttl)
        if copy is None:
            assert answer == "not-resident"
        else:
            assert not isinstance(answer, str)
            assert answer.pin.until == copy.pins[holder].until

    @rule(holder=holders, key=keys)
    def unpin(self, holder: str, key: str) -> None:
        self.passes(1.0)
        answer = self.answer(self.node.cache.unpin(holder, Key.parse(key)))
        assert (answer is None) == self.naive.unpin(holder, key)

    @rule(seconds=st.sampled_from([5.0, 30.0, 60.0]))
    def passes(self, seconds: float) -> None:
        self.node.clock.advance(seconds)
        self.do(self.lapse())
        self.naive.lapse(self.node.clock.now())

    async def lapse(self) -> None:
        self.node.cache._context.changed.notify()
        for _ in range(3):
            await asyncio.sleep(0)
        await self.node.quiet()

    @rule(key=keys)
    def delete(self, key: str) -> None:
        answer = self.answer(self.node.cache.delete(Key.parse(key)))
        assert ("deleted" if answer is None else answer) == self.naive.delete(key)

    @rule(number=st.integers(0, 3))
    def open(self, number: int) -> None:
        """Some process opens a file of a model, known to the cache only by the kernel's word."""
        copies = [one for one in self.naive.copies if not one.damaged and not one.open]
        if copies:
            copy = copies[number % len(copies)]
            self.descriptors[copy] = os.open(self.file_of(copy), os.O_RDONLY)
            copy.open = True

    @rule()
    def close(self) -> None:
        if self.descriptors:
            copy = next(iter(self.descriptors))
            os.close(self.descriptors.pop(copy))
            copy.open = False

    @rule()
    def ask_again(self) -> None:
        self.do(self.node.ask_again())
        self.naive.ask_again()

    @rule(number=st.integers(0, 2))
    def damage(self, number: int) -> None:
        self.passes(10.0)
        copies = [one for one in self.naive.current.values() if not one.open]
        if not copies:
            return
        copy = copies[number % len(copies)]
        file = self.file_of(copy)
        file.unlink()
        # Of as many blocks, so that the disk still holds what is booked.
        file.write_bytes(bytes(copy.blocks * BLOCK - 2))
        assert self.answer(self.node.cache.get(Key.parse(copy.key))) == "not-resident"
        self.naive.damage(copy)

    @rule()
    def restart(self) -> None:
        self.do(self.restarted())
        # What is damaged is found so anew, by the first pass over all.
        self.naive.restart(self.node.clock.now())

    async def restarted(self) -> None:
        await self.node.restart()
        await self.node.cache._checks.check_all()
        shelf = self.node.cache.audit()._shelf
        await self.node.until(lambda: not shelf.leaving and not list(shelf.unkept()))

    # -- What must be true -------------------------------------------------------

    @invariant()
    def books_and_disk_agree(self) -> None:
        self.do(self.node.agree())

    @invariant()
    def the_naive_model_agrees(self) -> None:
        ledger, naive = self.node.cache.audit(), self.naive
        assert self.node.idle_first() == naive.idle_first
        assert sorted(map(self.figures, ledger.generations())) == sorted(
            (
                copy.key,
                copy.blocks,
                naive.current.get(copy.key) is copy,
                copy.seen_open,
                sorted(((who, lease.until) for who, lease in copy.pins.items()), key=str),
            )
            for copy in naive.copies
        )
        assert ledger.usage().used == sum(one.blocks for one in naive.copies) * BLOCK
        assert ledger.usage().used <= CAPACITY * BLOCK

    @staticmethod
    def figures(one: Generation) -> tuple[object, ...]:
        return (
            str(one.id.key),
            one.bytes // BLOCK,
            one.standing is Standing.RESIDENT,
            one.in_use,
            sorted(((pin.holder, pin.until) for pin in one.pins.values()), key=str),
        )

    # -- Inside --------------------------------------------------------------------

    def file_of(self, copy: Copy) -> Path:
        data = bytes_of(f"{copy.key} {copy.seed}", copy.blocks * BLOCK - 1)
        name = copy.key.rpartition("/")[2]
        (file,) = (
            file
            for file in self.node.root.glob(f"models/{copy.key.replace('/', '+')}.*/{name}/{name}")
            if file.read_bytes() == data
        )
        file.parent.chmod(0o755)
        return file


CacheMachine.TestCase.settings = settings(
    max_examples=400 if THOROUGH else 40, stateful_step_count=40, deadline=None
)
TestCache = CacheMachine.TestCase
