"""Verification: what is found is set aside, and nobody waits for it or is kept by it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.api.origin import Origin
from tests.cache import fetch_stories
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, STILL, Node, running, soon
from tests.cache.stories import CAPACITY, KEY, a_model, a_model_with_another_byte, is_as_good_as_new
from tests.store.damages import flip_byte
from tests.store.support import HOLDS, process
from weightd.cache.following import Following
from weightd.cache.records import VerifyView
from weightd.errors import Draining, IoError, NotResident, Pinned, TooMany
from weightd.model import Key, Manifest
from weightd.store import Reading


async def verify(node: Node, key: Key = KEY) -> tuple[str, VerifyView]:
    """The outcome, and all that is told with it."""
    async with aclosing(await node.cache.verifications.begin(key)) as lines:
        *_, last = [line async for line in lines]
    assert last is not None
    assert last.type == "end"
    view = last.data["verification"]
    assert isinstance(view, VerifyView)
    return str(last.data["outcome"]), view


def damage_counted(node: Node) -> tuple[int, int]:
    """How many were found damaged, and how many went for it."""
    counters = node.cache._context.counters
    return counters.damaged_models, counters.evictions["damage"]


def weights(node: Node, key: str = "org+model") -> Path:
    (file,) = (node.root / "models").glob(f"{key}.*/model/model")
    return file


async def is_a_miss(node: Node, key: Key = KEY) -> None:
    with pytest.raises(NotResident):
        await soon(node.cache.get(key))
    with pytest.raises(NotResident):
        await soon(node.cache.pin("another", key))


async def test_what_is_whole_stays_as_it_is(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        await node.put("newer", BLOCK)
        outcome, view = await soon(verify(node))
        assert (outcome, view.state, view.flaws) == ("whole", "ended", ())
        assert view.bytes_done == view.bytes_total == 4 * BLOCK
        counters = node.cache._context.counters
        assert counters.lookups == {"hit": 0, "miss": 0}
        assert node.idle_first() == ["org/model", "newer"], "it is no use"
        assert damage_counted(node) == (0, 0)


async def test_what_is_damaged_goes_and_is_journalled(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model_with_another_byte(node)
        events = node.cache.events(0)
        outcome, view = await soon(verify(node))
        assert (outcome, view.kept, view.shared) == ("damaged", False, ())
        (flaw,) = view.flaws
        assert (flaw.path, flaw.problem) == ("model", "digest-mismatch")
        await is_a_miss(node)
        ((entry,), _) = await node.cache.evictions(10)
        assert (entry.key, entry.reason) == (KEY, "damage")
        assert damage_counted(node) == (1, 1)
        types = [event.type async for event in _until(events, "evicted")]
        assert types == ["published", "damaged", "evicted"]
        assert (await node.put("org/model", 4 * BLOCK)).created
        assert (await soon(verify(node)))[0] == "whole"


async def _until(events: Any, type: str) -> Any:
    async with aclosing(events):
        async for event in events:
            yield event
            if event.type == type:
                return


async def test_what_is_damaged_and_pinned_stays_for_its_holder_alone(root: Path) -> None:
    """Also after a restart, of which no look at the files would tell anything."""
    async with running(root, CAPACITY) as node:
        await a_model_with_another_byte(node)
        await node.cache.pin("replica", KEY)
        outcome, view = await soon(verify(node))
        assert (outcome, view.kept) == ("damaged", True)
        file = weights(node)
        for _ in range(2):
            await is_a_miss(node)
            assert len(file.read_bytes()) == 4 * BLOCK
            with pytest.raises(Pinned):
                await node.put("org/model", 4 * BLOCK)
            assert [view.holder for view in node.cache.pins()] == ["replica"]
            await node.restart()
        await is_a_miss(node)
        await node.cache.unpin("replica", KEY)
        await node.quiet()
        assert not file.exists()
        assert damage_counted(node)[1] == 1
        await is_as_good_as_new(node)


async def test_what_is_damaged_and_held_stays_until_the_hold_ends(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model_with_another_byte(node)
        file = weights(node)
        with process(HOLDS, file.parent) as holder:
            outcome, view = await soon(verify(node))
            assert (outcome, view.kept) == ("damaged", True)
            await is_a_miss(node)
            assert file.exists()
            holder.communicate()
        await node.ask_again()
        await node.quiet()
        assert not file.exists()
        assert damage_counted(node) == (1, 1)


async def test_all_that_share_a_damaged_file_go(root: Path, origin: Origin) -> None:
    async with running(root, CAPACITY) as node:
        node.origin = origin
        await fetch_stories.a_fetched_model(node)
        await fetch_stories.fetch_another_that_shares(node)
        await node.only_loops()
        await node.put("apart", BLOCK)
        shared = [
            file
            for file in (node.root / "models").rglob("*")
            if file.is_file() and file.stat().st_nlink > 1
        ]
        assert shared
        flip_byte(shared[0])
        keys = [key for key in node.resident() if key != "apart"]
        outcome, view = await soon(verify(node, Key.parse(keys[0])))
        assert (outcome, [str(key) for key in view.shared]) == ("damaged", keys[1:])
        assert node.resident() == ["apart"]
        assert damage_counted(node) == (2, 2)


async def test_what_is_not_here(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(NotResident):
            await verify(node)
        assert node.cache._context.counters.lookups["miss"] == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_delete_goes_ahead_meanwhile(root: Path, after: bool) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("verify", after=after)
        verifying = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        await soon(node.cache.delete(KEY))
        hold.let_go()
        assert (await soon(verifying))[0] == "gone"
        assert damage_counted(node) == (0, 0)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_eviction_goes_ahead_meanwhile(root: Path, after: bool) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("verify", after=after)
        verifying = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        await soon(node.put("large", CAPACITY))
        hold.let_go()
        assert (await soon(verifying))[0] == "gone"


@pytest.mark.parametrize(("pinned", "found"), [(False, "gone"), (True, "whole")])
async def test_a_replacement_goes_ahead_meanwhile(root: Path, pinned: bool, found: str) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        if pinned:
            await node.cache.pin("replica", KEY)
        before = (await node.cache.peek(KEY)).manifest.digest
        hold = node.workers.arm("verify", after=False)
        verifying = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        await soon(node.put("org/model", 4 * BLOCK, "new"))
        hold.let_go()
        outcome, view = await soon(verifying)
        assert (outcome, view.generation.digest) == (found, before)
        outcome, view = await soon(verify(node))
        assert outcome == "whole"
        assert view.generation.digest != before


async def test_what_came_again_meanwhile_is_not_what_was_read(root: Path) -> None:
    """The same content in the same place, and still another copy."""
    async with running(root, CAPACITY) as node:
        await a_model_with_another_byte(node)
        hold = node.workers.arm("verify", after=True)
        verifying = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        await soon(node.cache.delete(KEY))
        await soon(node.put("org/model", 4 * BLOCK))
        hold.let_go()
        assert (await soon(verifying))[0] == "gone"
        assert (await soon(verify(node)))[0] == "whole"


async def test_what_a_lookup_finds_damaged_meanwhile(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("verify", after=True)
        verifying = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        weights(node).unlink()
        await is_a_miss(node)
        hold.let_go()
        outcome, view = await soon(verifying)
        assert (outcome, [flaw.problem for flaw in view.flaws]) == ("damaged", ["changed"])
        assert damage_counted(node) == (1, 1), "it is counted once"


async def test_a_directory_that_somebody_removed_is_damage(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        file = weights(node)
        for path in (file.parent, file.parents[1]):
            path.chmod(0o755)
        file.parents[1].rename(root / "elsewhere")
        outcome, view = await soon(verify(node))
        assert (outcome, [flaw.problem for flaw in view.flaws]) == ("damaged", ["missing"])
        await is_a_miss(node)


async def test_lookups_and_pins_do_not_wait_for_it(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("verify", after=False)
        verifying = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        await soon(node.get("org/model"))
        await soon(node.cache.pin("replica", KEY))
        await soon(node.sweep())
        await soon(node.cache.unpin("replica", KEY))
        hold.let_go()
        assert (await soon(verifying))[0] == "whole"


async def test_one_after_the_other(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, verifications=1)) as node:
        await a_model(node)
        await node.put("other", BLOCK)
        hold = node.workers.arm("verify", after=False)
        first = asyncio.create_task(verify(node))
        await soon(hold.met.wait())
        async with aclosing(await node.cache.verifications.begin(Key("other"))) as lines:
            line = await soon(anext(lines))
            assert line is not None
            view = line.data["verification"]
            assert isinstance(view, VerifyView)
            assert (line.type, view.state, view.bytes_done) == ("progress", "queued", 0)
            with pytest.raises(TooMany):
                await node.cache.verifications.begin(KEY)
            hold.let_go()
            *_, last = [line async for line in lines]
        assert last is not None
        assert last.data["outcome"] == "whole"
        assert (await soon(first))[0] == "whole"
        assert (await soon(verify(node)))[0] == "whole"


async def test_of_many_at_once_so_many_are_taken_and_one_that_is_never_read_leaves(
    root: Path,
) -> None:
    async with running(root, CAPACITY, options=replace(STILL, verifications=2)) as node:
        await a_model(node)
        begin = node.cache.verifications.begin
        begun = await asyncio.gather(*(begin(KEY) for _ in range(8)), return_exceptions=True)
        refused = [one for one in begun if isinstance(one, TooMany)]
        taken = [one for one in begun if isinstance(one, Following)]
        assert (len(taken), len(refused)) == (3, 5)
        for one in taken:
            await one.aclose()
        while node.cache.verifications._running:
            await asyncio.sleep(0)
        assert (await soon(verify(node)))[0] == "whole"


async def test_one_that_waited_reads_what_is_current_then(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        await node.put("other", BLOCK)
        hold = node.workers.arm("verify", after=False)
        first = asyncio.create_task(verify(node, Key("other")))
        await soon(hold.met.wait())
        waiting, vain = asyncio.create_task(verify(node)), asyncio.create_task(verify(node))
        while len(node.cache.verifications._running) < 3:
            await asyncio.sleep(0)
        await node.put("org/model", 4 * BLOCK, "new")
        hold.let_go()
        assert (await soon(first))[0] == "whole"
        outcome, view = await soon(waiting)
        assert outcome == "whole"
        assert view.generation.digest == (await node.cache.peek(KEY)).manifest.digest
        assert (await soon(vain))[0] == "whole"


async def test_an_end_of_the_daemon_ends_it_and_whoever_waits(root: Path) -> None:
    node = Node(root, CAPACITY)
    await node.open()
    await a_model(node)
    hold = node.workers.arm("verify", after=False)
    both = [asyncio.create_task(verify(node)) for _ in range(2)]
    await soon(hold.met.wait())
    while len(node.cache.verifications._running) < 2:
        await asyncio.sleep(0)
    node.cache.drain()
    assert [(await soon(one))[0] for one in both] == ["draining", "draining"]
    with pytest.raises(Draining):
        await node.cache.verifications.begin(KEY)
    hold.let_go()
    await soon(node.close())


async def test_the_thread_ends_soon_after_who_followed_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put_tar("org/model", {str(name): bytes_of(name, 100) for name in range(5)})
        read, found = node.store.verify, []

        def noted(manifest: Manifest, reading: Reading) -> object:
            found.append(read(manifest, reading))
            return found[-1]

        monkeypatch.setattr(node.store, "verify", noted)
        # What looks and seizures take, a reading takes for each of its steps.
        with node.store._seizing:
            async with aclosing(await node.cache.verifications.begin(KEY)) as lines:
                await soon(anext(lines))
        await soon(node.workers.verify(int))
        assert found == [None], "it was stopped before its end"


async def test_a_disk_that_hangs_ends_it(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, read_timeout=0.1)) as node:
        await a_model(node)
        hold = node.workers.arm("verify", after=False)
        outcome, view = await soon(verify(node))
        assert outcome == "failed"
        assert isinstance(view.error, IoError)
        assert "0.1 s" in view.error.error
        await soon(node.get("org/model"))
        hold.let_go()
        await is_as_good_as_new(node)


async def test_a_silent_one_has_a_heartbeat(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, heartbeat=0.0)) as node:
        await a_model(node)
        hold = node.workers.arm("verify", after=False)
        async with aclosing(await node.cache.verifications.begin(KEY)) as lines:
            kinds = [None if line is None else line.type async for line in _first(lines, 3)]
        assert kinds == ["progress", None, None]
        hold.let_go()


async def _first(lines: Any, count: int) -> Any:
    async for line in lines:
        yield line
        count -= 1
        if not count:
            return


async def test_the_mark_of_damage_fails_and_it_is_set_aside_all_the_same(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, CAPACITY) as node:
        await a_model_with_another_byte(node)
        await node.cache.pin("replica", KEY)
        node.workers.fail_call("mark_damaged", IoError(call="mark", error="Input/output error"))
        assert (await soon(verify(node)))[0] == "damaged"
        await is_a_miss(node)
        assert "the next start may answer it" in caplog.text
        await node.cache.unpin("replica", KEY)


async def test_a_partial_file_is_told_beside_a_whole_one(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put_tar("org/model", {name: bytes_of(name, 5000) for name in "abc"})
        (file,) = (node.root / "models").glob("*/model/b")
        flip_byte(file, 4999)
        _, view = await soon(verify(node))
        assert [flaw.path for flaw in view.flaws] == ["b"]
