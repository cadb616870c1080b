"""Use that the kernel knows: seen by the sweep, named, counted, and seen to end."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache import PinView
from weightd.errors import Blocked, InUse
from weightd.model import Key

MB = 10**6

# Another process, which says when it has what it was told to take, and lets go at end of input.
HOLDER = """
import fcntl, mmap, os, sys
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
if how == "hold":
    fcntl.flock(fd, fcntl.LOCK_SH)
else:
    mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
print("taken", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(how: str, path: Path) -> Iterator[int]:
    """A process that holds ``path`` or has it mapped, for as long as this lasts; its pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, how, os.fspath(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"taken\n"
        yield process.pid


@pytest.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    node = Node(root, 10 * MB)
    await node.open()
    yield node
    await node.close()


def seen(node: Node) -> list[PinView]:
    return [view for view in node.cache.pins() if view.kind != "pin"]


async def test_everybody_who_holds_a_model_is_seen(node: Node) -> None:
    record = (await node.put("org/model", MB)).record
    began = node.clock.now()
    with another_process("hold", record.path) as first:
        await node.sweep()
        node.clock.advance(10)
        with another_process("hold", record.path) as second:
            await node.sweep()
            told = {(view.kind, view.pid, view.since - began) for view in seen(node)}
            assert told == {("hold", first, 0), ("hold", second, 10)}
            assert (await node.cache.snapshot()).holds == 1
        await node.sweep()
        assert [view.pid for view in seen(node)] == [first]


async def test_a_hold_is_seen_with_its_process_and_seen_to_end(node: Node) -> None:
    record = (await node.put("org/model", MB)).record
    with another_process("hold", record.path) as pid:
        await node.sweep()
        (view,) = seen(node)
        assert (view.kind, view.pid, view.holder) == ("hold", pid, None)
        assert view.process is not None
        assert view.process.startswith("python")
        assert (await node.cache.peek(Key("org/model"))).held
        assert (await node.cache.snapshot()).holds == 1
        assert node.cache.audit().usage().evictable == 0
        with pytest.raises(InUse):
            await node.cache.delete(Key("org/model"))
    await node.sweep()
    assert seen(node) == []
    assert not (await node.cache.peek(Key("org/model"))).held
    await node.cache.delete(Key("org/model"))


async def test_one_that_has_just_ended_is_in_nobodys_way(node: Node) -> None:
    """Neither an arrival nor a dry run of one waits for the next sweep."""
    record = (await node.put("org/model", 6 * MB)).record
    with another_process("hold", record.path):
        await node.sweep()
        assert (await node.cache.admission(6 * MB)).verdict == "blocked"
        with pytest.raises(Blocked):
            await node.put("next", 6 * MB)
    assert (await node.cache.peek(Key("org/model"))).held
    assert (await node.cache.admission(6 * MB)).verdict == "evicts"
    with another_process("map", record.path / "model"):
        await node.sweep()
    assert (await node.put("next", 6 * MB)).created


async def test_a_mapping_without_a_descriptor_is_a_use(node: Node) -> None:
    record = (await node.put("org/model", MB)).record
    with another_process("map", record.path / "model") as pid:
        await node.sweep()
        (view,) = seen(node)
        assert (view.kind, view.pid) == ("use", pid)
        assert (await node.cache.snapshot()).uses == 1
        assert not (await node.cache.peek(Key("org/model"))).held
    await node.sweep()
    assert seen(node) == []


async def test_what_is_seen_is_no_victim_before_any_eviction_met_it(node: Node) -> None:
    used = (await node.put("used", 4 * MB)).record
    await node.put("idle", 4 * MB)
    with another_process("map", used.path / "used"):
        await node.sweep()
        verdict = await node.cache.admission(5 * MB)
        assert [str(victim.key) for victim in verdict.victims] == ["idle"]


async def test_weightds_own_reader_is_no_use(node: Node) -> None:
    await node.put("org/model", MB)
    async with node.cache.content(Key("org/model"), "model"):
        await node.sweep()
        assert seen(node) == []


async def test_the_sweep_tells_how_old_it_is(node: Node) -> None:
    assert node.cache.swept_at is None
    await node.sweep()
    assert node.cache.swept_at == node.clock.now()


async def test_a_retired_model_goes_when_its_last_user_does(node: Node) -> None:
    old = (await node.put("org/model", MB, seed=1)).record
    descriptor = os.open(old.path / "model", os.O_RDONLY)
    try:
        with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
            os.close(descriptor)
            descriptor = -1
            await node.put("org/model", MB, seed=2)
            assert node.cache.audit().usage().retired_models == 1
            await node.ask_again()
            assert node.cache.audit().usage().retired_models == 1
            assert len(mapped) == MB
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    await node.ask_again()
    await node.quiet()
    assert node.cache.audit().usage().retired_models == 0
    assert not old.path.exists()


async def test_a_shared_lock_can_be_taken_while_the_sweep_looks(node: Node) -> None:
    record = (await node.put("org/model", MB)).record
    descriptor = os.open(record.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        await node.sweep()
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


async def test_a_model_that_cannot_be_looked_at_hides_no_other_and_no_round_is_claimed(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = (await node.put("bad", MB)).record, (await node.put("good", MB)).record
    bad.path.chmod(0o755)
    deep = bad.path
    for _ in range(70):
        deep /= "d"
        deep.mkdir()
    with another_process("map", good.path / "good"):
        await node.sweep()
        assert [str(view.generation.key) for view in seen(node)] == ["good"]
    assert node.cache.swept_at is None
    told = [one for one in caplog.records if one.message == "whether it is in use is not known"]
    assert {vars(one)["key"] for one in told} == {"bad"}
    shutil.rmtree(bad.path / "d")
    await node.sweep()
    assert node.cache.swept_at == node.clock.now()


async def test_a_search_for_a_process_that_is_not_found_is_repeated_ever_later(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This very process is one that the search passes over."""
    record = (await node.put("org/model", MB)).record
    searched = 0
    name = node.store.name_processes

    def count(uses: object) -> object:
        nonlocal searched
        searched += 1
        return name(uses)  # type: ignore[arg-type]

    monkeypatch.setattr(node.store, "name_processes", count)
    with (record.path / "model").open("rb"):
        for _ in range(600):
            await node.sweep()
            node.clock.advance(1.0)
        (view,) = seen(node)
        assert view.pid is None
    assert 5 <= searched <= 12


@pytest.mark.parametrize("how", ["hold", "map"])
async def test_a_use_that_ended_since_it_was_seen_keeps_nobody_from_deleting(
    node: Node, how: str
) -> None:
    record = (await node.put("org/model", MB)).record
    with another_process(how, record.path if how == "hold" else record.path / "model"):
        await node.sweep()
        assert len(seen(node)) == 1
        with pytest.raises(InUse):
            await node.cache.delete(Key("org/model"))
    await node.cache.delete(Key("org/model"))
    assert node.resident() == []


async def test_a_process_that_is_gone_is_named_no_more(node: Node) -> None:
    """The lock lives on with a child, and the kernel names the parent who took it."""
    record = (await node.put("org/model", MB)).record
    code = (
        "import fcntl, os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_SH)\n"
        "if os.fork() == 0: print('taken', flush=True); sys.stdin.read(); os._exit(0)\n"
        "os.read(int(sys.argv[2]), 1); os._exit(0)\n"
    )
    end, told = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", code, os.fspath(record.path), str(end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[end],
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"taken\n"
        await node.sweep()
        assert [view.pid for view in seen(node)] == [parent.pid]
        os.close(end)
        os.close(told)
        parent.wait()
        await node.sweep()
        assert [(view.kind, view.pid) for view in seen(node)] == [("hold", None)]
        parent.stdin.close()
        while seen(node):
            await node.sweep()


async def test_a_renewal_waits_only_so_long_for_a_look(root: Path) -> None:
    """Somebody reads another model from a slow disk; the pin is renewed all the same."""
    options = replace(STILL, hold_timeout=0.01)
    async with running(root, 4 * BLOCK, options=options) as node:
        put = await node.put("org/model", BLOCK)
        await node.cache.pin("replica", Key("org/model"))
        hold = node.workers.arm("look", after=False)
        with another_process("hold", put.record.path):
            renewed = await soon(node.cache.pin("replica", Key("org/model")))
            assert (renewed.created, renewed.record.held) == (False, False)
            # Those who renew meanwhile share the look that comes next.
            again = [soon(node.cache.pin("replica", Key("org/model"))) for _ in range(8)]
            await asyncio.gather(*again)
            hold.let_go()
            await node.quiet()
            assert (await soon(node.cache.pin("replica", Key("org/model")))).record.held


async def test_a_pin_is_idle_while_nothing_shows_that_it_is_of_use(node: Node) -> None:
    """A lease, one forever and one whose model somebody has open are not told as idle."""
    record = (await node.put("org/model", MB)).record
    await node.put("other", MB)
    began = node.clock.now()
    await node.cache.pin("pod", Key("org/model"))
    await node.cache.pin("lease", Key("other"), ttl=10**6)
    await node.cache.pin("keeper", Key("other"), forever=True)
    assert await idle_since(node) is None, "nobody has looked yet"
    with another_process("map", record.path / "model"):
        await node.sweep()
        assert await idle_since(node) is None
    node.clock.advance(100)
    await node.sweep()
    assert await idle_since(node) == began
    await node.cache.unpin("pod", Key("org/model"))
    assert await idle_since(node) is None


async def idle_since(node: Node) -> float | None:
    return (await node.cache.snapshot()).oldest_idle_pin_since
