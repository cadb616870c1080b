"""The cache over a real directory, step by step beside a naive model.

After every step, once all is quiet: the same models in the same order of
eviction, the same pins, and on disk the blocks that the books say.  The only
tolerance is the block that a file's extents may take beside its bytes (see
`Node.agree`).  A restart changes nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.api.origin import http_origin
from tests.cache import upload_stories
from tests.cache.contents import (
    FETCHED,
    blocks_of,
    body_of,
    digest_of,
    files_of,
    name_of,
    own_blocks,
)
from tests.cache.doubles import bytes_of
from tests.cache.fetch_stories import leave_part_of, source_of
from tests.cache.naive import SHARED, SHARED_BLOCKS, Blob, Copy, Naive, Upload
from tests.cache.node import BLOCK, Node, soon
from tests.store.damages import flip_byte
from tests.tiers import THOROUGH
from weightd.cache import FetchTerms
from weightd.cache.fetching.partials import Partial
from weightd.cache.fetching.terms import FetchView
from weightd.errors import WeightdError
from weightd.ledger import Generation, Standing
from weightd.model import Key

T = TypeVar("T")

CAPACITY = 12

keys = st.sampled_from(["a", "b", "org/c"])
holders = st.sampled_from(["one", "two"])
seeds = st.integers(0, 2)


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
        self.uploads: list[tuple[Upload, str, Path]] = []
        self.serving = ExitStack()
        self.node.origin = self.serving.enter_context(http_origin())
        self.do(self.node.open())

    def teardown(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.do(self.node.close())
        self.runner.close()
        self.serving.close()
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
    def begin(self) -> None:
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
            assert (answer.path / name_of(copy)).read_bytes() == body_of(key, copy.seed)
            if copy.shared is not None:
                shared = files_of(key, copy.seed)[SHARED]
                assert (answer.path / SHARED).read_bytes() == shared

    @rule(key=keys, seed=seeds, holder=st.one_of(st.none(), holders))
    def fetch(self, key: str, seed: int, holder: str | None) -> None:
        """Ask the origin, which has another revision perhaps, whatever is here."""
        self.passes(1.0)
        seed += FETCHED
        linked = self.holder_of_shared()
        answer = self.answer(self.fetched(key, seed, holder))
        expected = self.naive.fetch(key, seed, own_blocks(key, seed), linked)
        if isinstance(answer, str):
            assert answer == expected
            return
        assert expected in ("created", "same")
        if holder is not None:
            self.naive.pin_fetched(holder, key)

    async def fetched(self, key: str, seed: int, holder: str | None) -> FetchView:
        job = await self.asked(key, seed, holder)
        await self.node.only_loops()
        job = self.node.cache.fetching.view(job.id)
        if job.error is not None:
            raise job.error
        return job

    async def asked(self, key: str, seed: int, holder: str | None = None) -> FetchView:
        """Without waiting for room, nor longer than until bytes move."""
        source = source_of(self.node.origin, files_of(key, seed), key.replace("/", "-"))
        terms = FetchTerms((source,), holder=holder, forever=holder is not None, revalidate=True)
        outcome = await self.node.cache.fetch(Key.parse(key), terms)
        assert outcome.job is not None
        return outcome.job

    @rule(key=keys, seed=seeds)
    def cancel(self, key: str, seed: int) -> None:
        """A fetch that is given up when it has its room: that is gone, and what was left of it."""
        self.passes(1.0)
        seed += FETCHED
        linked = self.holder_of_shared()
        blocks = own_blocks(key, seed)
        answer = self.answer(self.cancelled(key, seed))
        if answer == "fetch-cancelled":
            assert self.naive.begin(key, seed, blocks, linked) is None
            self.naive.give_up(key)
        else:
            expected = self.naive.fetch(key, seed, blocks, linked)
            assert expected == (answer if isinstance(answer, str) else "same")

    async def cancelled(self, key: str, seed: int) -> FetchView:
        hold = self.node.workers.arm("_prepare", after=False)
        asking = asyncio.ensure_future(self.fetched(key, seed, None))
        met = asyncio.ensure_future(hold.met.wait())
        await asyncio.wait([asking, met], return_when=asyncio.FIRST_COMPLETED)
        for job in self.node.cache.fetching.views():
            if hold.met.is_set() and job.state == "downloading":
                cancelling = asyncio.ensure_future(self.node.cache.fetching.cancel(job.id))
                await asyncio.sleep(0)
                hold.let_go()
                await cancelling
        hold.let_go()
        met.cancel()
        return await asking

    @rule(key=keys, seed=seeds)
    def leave_half(self, key: str, seed: int) -> None:
        """What an earlier run would have left: the shared file of a model that is not here."""
        naive = self.naive
        if naive.left_of(key) is None and naive.promised + SHARED_BLOCKS <= CAPACITY:
            self.do(self.left_half(key, seed + FETCHED))
            naive.leave(key, 0, shared=True)

    async def left_half(self, key: str, seed: int) -> None:
        node, files = self.node, files_of(key, seed)
        source = source_of(node.origin, files, key.replace("/", "-"))
        begun = {SHARED: len(files[SHARED])}
        stored = await asyncio.to_thread(
            leave_part_of, node.store, source, files, begun, Key.parse(key)
        )
        node.cache._context.partials.load(stored)

    def holder_of_shared(self) -> Copy | None:
        """The copy that is linked to where the shared file is wanted."""
        sha256 = hashlib.sha256(bytes_of(SHARED, SHARED_BLOCKS * BLOCK)).hexdigest()
        found = self.node.cache.audit().find_blob(sha256, SHARED_BLOCKS * BLOCK)
        with_it = [one for one in self.naive.copies if one.shared is not None and not one.damaged]
        assert (found is None) == (not with_it)
        if found is None:
            return None
        return next(one for one in with_it if digest_of(one) == found[0].digest)

    @rule(key=keys, seed=seeds)
    def begin_upload(self, key: str, seed: int) -> None:
        if len(self.uploads) == 2:
            return
        self.passes(1.0)
        files = {name_of(Copy(key, seed, Blob(0))): body_of(key, seed)}
        answer = self.answer(upload_stories.begin(self.node, Key.parse(key), files))
        expected = self.naive.begin_upload(key, seed, blocks_of(key, seed))
        assert (answer if isinstance(answer, str) else None) == expected
        if not isinstance(answer, str):
            self.uploads.append((self.naive.uploads[-1], answer.id, answer.path))

    @rule(number=st.integers(0, 1), share=st.sampled_from([1, 1, 2]))
    def fill(self, number: int, share: int) -> None:
        """All of it, or half."""
        for upload, _, path in self.uploads[number : number + 1]:
            upload.written = max(1, upload.blocks // share)
            body = body_of(upload.key, upload.seed)[: upload.written * BLOCK]
            place = path / name_of(Copy(upload.key, upload.seed, Blob(0)))
            place.unlink(missing_ok=True)
            place.write_bytes(body)
            self.do(self.node.cache.uploads.tidy())

    @rule(number=st.integers(0, 1))
    def commit(self, number: int) -> None:
        for one in self.uploads[number : number + 1]:
            upload, id, _ = one
            self.passes(1.0)
            answer = self.answer(self.node.cache.uploads.commit(id))
            expected = self.naive.commit_upload(upload)
            if isinstance(answer, str):
                assert answer == expected
            else:
                assert ("created" if answer.created else "same") == expected
                self.uploads.remove(one)

    @rule(number=st.integers(0, 1), forgotten=st.booleans())
    def end_upload(self, number: int, forgotten: bool) -> None:
        """One is given up, or all are forgotten."""
        if forgotten:
            self.passes(self.node.options.upload_ttl + 1.0)
            self.do(self.node.cache.uploads.tidy())
        going = self.uploads[:] if forgotten else self.uploads[number : number + 1]
        for one in going:
            upload, id, _ = one
            answer = self.answer(self.node.cache.uploads.cancel(id))
            assert answer == ("unknown-upload" if forgotten else None)
            self.naive.uploads.remove(upload)
            self.uploads.remove(one)

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
        file.write_bytes(bytes(copy.own.blocks * BLOCK - 2))
        assert self.answer(self.node.cache.get(Key.parse(copy.key))) == "not-resident"
        self.naive.damage(copy)

    @rule(key=keys)
    def verify(self, key: str) -> None:
        """It finds nothing, counts nothing and moves nothing."""
        here = key in self.naive.current
        assert self.answer(self.verified(key)) == ("whole" if here else "not-resident")

    @rule(number=st.integers(0, 2))
    def decay(self, number: int) -> None:
        """Another byte, which only a verification finds, and of which every later look knows."""
        copies = [one for one in self.naive.current.values() if not one.open]
        if copies:
            copy = copies[number % len(copies)]
            flip_byte(self.file_of(copy))
            assert self.answer(self.verified(copy.key)) == "damaged"
            self.naive.damage(copy)

    async def verified(self, key: str) -> str:
        async with aclosing(await self.node.cache.verifications.begin(Key.parse(key))) as lines:
            *_, last = [line async for line in lines]
        assert last is not None
        return str(last.data["outcome"])

    @rule()
    def restart(self) -> None:
        self.do(self.restarted())
        self.uploads.clear()
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
        told = sorted(map(self.figures, ledger.generations()), key=str)
        assert told == sorted(
            (
                (
                    copy.key,
                    copy.blocks,
                    naive.current.get(copy.key) is copy,
                    copy.seen_open,
                    sorted(((who, lease.until) for who, lease in copy.pins.items()), key=str),
                )
                for copy in naive.copies
            ),
            key=str,
        )
        assert ledger.usage().used == naive.used * BLOCK
        partials = {str(one.stored.key): one.stored.bytes for one in self.partials()}
        assert partials == {one.key: one.blocks * BLOCK for one in naive.left}
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

    def partials(self) -> list[Partial]:
        return list(self.node.cache._context.partials)

    # -- Inside --------------------------------------------------------------------

    def file_of(self, copy: Copy) -> Path:
        data, name = body_of(copy.key, copy.seed), copy.key.rpartition("/")[2]
        pattern = f"models/{copy.key.replace('/', '+')}.*/{name}/{name_of(copy)}"
        (file,) = (file for file in self.node.root.glob(pattern) if file.read_bytes() == data)
        file.parent.chmod(0o755)
        return file


CacheMachine.TestCase.settings = settings(
    max_examples=400 if THOROUGH else 30, stateful_step_count=40, deadline=None
)
TestCache = CacheMachine.TestCase
