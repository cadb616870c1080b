"""Sixteen clients at a budget that forces eviction.

At no sampled instant is a byte more on disk than the budget allows, and no
model that was acknowledged is lost while it is pinned.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.cache.doubles import Paused, Whole, bytes_of, tar_of
from tests.cache.node import BLOCK, STILL, Node, occupied, running
from tests.tiers import THOROUGH
from weightd.cache import PutTerms, Record
from weightd.errors import (
    Blocked,
    Exists,
    GenerationGone,
    InUse,
    NotPinned,
    NotResident,
    Pinned,
    TooMany,
)
from weightd.model import Key

CLIENTS = 16
STEPS = 400 if THOROUGH else 40
CAPACITY = 64 * BLOCK
KEYS = [Key(f"org/model-{n}") for n in range(8)]

REFUSALS = (Blocked, Exists, GenerationGone, InUse, NotPinned, NotResident, Pinned, TooMany)

# A file's extents may take a block beside its bytes; none of these files is that scattered,
# but the file system decides.
TOLERANCE = 8 * BLOCK


class Sampler:
    """Adds up what is on disk, again and again, in a thread of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.most = 0
        self.samples = 0

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.is_set():
            self.most = max(self.most, occupied(self._root)[0])
            self.samples += 1


class Client:
    """Does one thing after another, and looks at what it pinned as long as it is pinned."""

    def __init__(self, node: Node, number: int) -> None:
        self._node = node
        self._random = random.Random(number)
        self._holder = f"client-{number}"
        self._pinned: dict[Key, Record] = {}
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        acts = {
            self.put: 4,
            self.put_archive: 1,
            self.put_and_give_up: 1,
            self.get: 4,
            self.pin: 3,
            self.unpin: 3,
            self.delete: 1,
            self.read: 2,
        }
        for _ in range(STEPS):
            (act,) = self._random.choices(list(acts), weights=list(acts.values()))
            # Whoever pins lets go again, but for a slip now and then.
            mine = act == self.unpin and self._pinned and self._random.random() < 0.7
            key = self._random.choice(list(self._pinned) if mine else KEYS)
            try:
                await act(key)
            except REFUSALS as refusal:
                self.done[f"{act.__name__}: {refusal.code}"] += 1
            else:
                self.done[act.__name__] += 1
            self.look()
        for key in list(self._pinned):
            await self.unpin(key)

    def _content(self, key: Key) -> bytes:
        return bytes_of(f"{key} {self._random.randrange(3)}", self._random.randrange(24 * BLOCK))

    async def put(self, key: Key) -> None:
        data = self._content(key)
        known = self._random.random() < 0.8
        terms = PutTerms(
            length=len(data) if known else None,
            create_only=self._random.random() < 0.1,
            wait=self._random.choice([0.0, 0.0, 0.05]),
        )
        await self._node.cache.put(key, Whole(data), terms)

    async def put_archive(self, key: Key) -> None:
        data = tar_of({f"part-{n}": self._content(key)[: 2 * BLOCK] for n in range(3)})
        await self._node.cache.put(key, Whole(data), PutTerms(length=len(data), archive=True))

    async def put_and_give_up(self, key: Key) -> None:
        data = self._content(key) + b"x"
        body = Paused(data, len(data) // 2)
        putting = asyncio.create_task(self._node.cache.put(key, body, PutTerms(length=len(data))))
        pausing = asyncio.create_task(body.paused.wait())
        await asyncio.wait([putting, pausing], return_when=asyncio.FIRST_COMPLETED)
        putting.cancel()
        pausing.cancel()
        await asyncio.wait([putting, pausing])
        if not putting.cancelled():
            putting.result()

    async def get(self, key: Key) -> None:
        await self._node.cache.get(key)

    async def pin(self, key: Key) -> None:
        outcome = await self._node.cache.pin(self._holder, key)
        self._pinned.setdefault(key, outcome.record)
        assert outcome.record.path == self._pinned[key].path

    async def unpin(self, key: Key) -> None:
        self._pinned.pop(key, None)
        await self._node.cache.unpin(self._holder, key)

    async def delete(self, key: Key) -> None:
        await self._node.cache.delete(key)

    async def read(self, key: Key) -> None:
        record = await self._node.cache.peek(key)
        entry = record.manifest.files[0]
        async with self._node.cache.content(key, entry.path) as contents:
            with open(contents.descriptor, "rb", closefd=False) as file:
                data = await asyncio.to_thread(file.read)
            assert hashlib.sha256(data).hexdigest() == contents.entry.sha256

    def look(self) -> None:
        """What this client pinned is there, whole."""
        for record in self._pinned.values():
            for entry in record.manifest.files:
                data = (record.path / entry.path).read_bytes()
                assert hashlib.sha256(data).hexdigest() == entry.sha256


async def test_sixteen_clients(root: Path) -> None:
    options = replace(STILL, check_age=0.0, sweep_interval=0.02, flush_interval=0.05)
    async with running(root, CAPACITY, options=options) as node:
        clients = [Client(node, number) for number in range(CLIENTS)]
        with Sampler(root) as sampler:
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.run())
            await node.quiet()
        done = sum((client.done for client in clients), Counter[str]())
        assert sampler.most <= CAPACITY + TOLERANCE, sampler.most
        assert sampler.samples > 20
        # It was a real crowd: everything happened, and room was short.
        tried = Counter(name.partition(":")[0] for name in done)
        for act in ("put", "get", "pin", "unpin", "delete", "read", "put_archive"):
            assert tried[act] > 0, done
        for act in ("put", "get", "pin", "unpin"):
            assert done[act] > 0, done
        assert node.cache._context.counters.evictions["admission"] > 10, done
        assert done["put: blocked"] > 0, done
        assert node.usage.pins == 0
        assert node.cache._context.counters.damaged_models == 0
        assert not node.cache._context.publishing
