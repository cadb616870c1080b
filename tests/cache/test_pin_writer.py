"""Changes to the record of pins are gathered, kept in order, and each is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from tests.cache.doubles import PATIENCE
from tests.cache.node import BLOCK, Node, running, soon
from weightd.cache.pin_writer import PinWriter
from weightd.errors import StateUnwritable
from weightd.model import GenerationId, Key, Pin
from weightd.store import PinChange

CAPACITY = 10 * BLOCK
ONE = GenerationId(Key.parse("org/m@r"), "1" * 64)


class Gate:
    """Stops the first commit, and notes what every one is of."""

    def __init__(self) -> None:
        self.commits: list[str] = []
        self.met, self.go = threading.Event(), threading.Event()

    def __call__(self, name: str) -> None:
        if not name.startswith(("pin.", "unpin.")):
            return
        self.commits.append(name)
        if len(self.commits) == 1:
            self.met.set()
            assert self.go.wait(PATIENCE)


def writer_of(node: Node) -> PinWriter:
    return node.cache._pins._writer


def put(holder: str) -> PinChange:
    return PinChange.put(Pin(holder, ONE, 1.5), "boot-1")


async def kept(node: Node) -> list[str]:
    stored = await asyncio.to_thread(writer_of(node)._database.load)
    return [one.pin.holder for one in stored]


async def test_what_is_asked_for_at_once_goes_into_one_transaction(root: Path) -> None:
    gate = Gate()
    gate.go.set()
    async with running(root, CAPACITY, reach=gate) as node:
        asked = [writer_of(node).ask(put(f"h{n}")) for n in range(10)]
        assert await soon(asyncio.gather(*asked)) == [None] * 10
        assert gate.commits == ["pin.before-commit", "pin.committed"]
        assert len(await kept(node)) == 10


async def test_what_is_asked_for_during_a_flush_goes_into_the_next(root: Path) -> None:
    gate = Gate()
    told: list[str] = []
    async with running(root, CAPACITY, reach=gate) as node:
        writer = writer_of(node)
        first = writer.ask(put("a"), lambda _: told.append("a"))
        assert await asyncio.to_thread(gate.met.wait, PATIENCE)
        rest = [
            writer.ask(put("b"), lambda _: told.append("b")),
            writer.ask(PinChange.remove("a", ONE), lambda _: told.append("no a")),
            writer.ask(put("c"), lambda _: told.append("c")),
        ]
        assert not told
        gate.go.set()
        assert await soon(asyncio.gather(first, *rest)) == [None] * 4
        assert told == ["a", "b", "no a", "c"]
        assert gate.commits == [
            "pin.before-commit",
            "pin.committed",
            "pin.before-commit",
            "unpin.before-commit",
            "pin.committed",
            "unpin.committed",
        ]
        assert await kept(node) == ["b", "c"]


async def test_who_stops_waiting_is_told_of_and_stops_nobody_else(root: Path) -> None:
    """The books were changed for it, so it is written all the same."""
    gate = Gate()
    told: list[StateUnwritable | None] = []
    async with running(root, CAPACITY, reach=gate) as node:
        writer = writer_of(node)
        first = writer.ask(put("a"), told.append)
        assert await asyncio.to_thread(gate.met.wait, PATIENCE)
        second = writer.ask(put("b"), told.append)
        first.cancel()
        second.cancel()
        last = writer.ask(put("c"), told.append)
        gate.go.set()
        assert await soon(last) is None
        assert told == [None] * 3
        assert await kept(node) == ["a", "b", "c"]


async def test_a_group_that_fails_is_told_to_each_of_it_and_not_to_the_next(root: Path) -> None:
    gate = Gate()

    def reach(name: str) -> None:
        gate(name)
        if gate.commits == ["pin.before-commit"]:
            raise RuntimeError("nobody expected this")

    async with running(root, CAPACITY, reach=reach) as node:
        writer = writer_of(node)
        first = [writer.ask(put("a")), writer.ask(put("b"))]
        assert await asyncio.to_thread(gate.met.wait, PATIENCE)
        last = writer.ask(put("c"))
        gate.go.set()
        failures = await soon(asyncio.gather(*first))
        assert all(isinstance(failure, StateUnwritable) for failure in failures)
        assert await soon(last) is None
        assert await kept(node) == ["c"]


async def test_what_is_told_badly_is_in_nobodys_way(root: Path) -> None:
    """A fault in what one of them calls for leaves the others their answers."""
    faults: list[object] = []

    def bad(_: StateUnwritable | None) -> None:
        raise RuntimeError("a fault")

    async with running(root, CAPACITY) as node:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: faults.append(context["exception"])
        )
        asked = [writer_of(node).ask(put("a"), bad), writer_of(node).ask(put("b"))]
        assert await soon(asyncio.gather(*asked)) == [None, None]
        assert [str(fault) for fault in faults] == ["a fault"]
