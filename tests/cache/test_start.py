"""What a start makes of what it finds."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import FakeClock
from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.errors import Blocked, IoError, RootUnusable
from weightd.model import Key
from weightd.store import NoSpace, Store

KEY = Key("model")
CAPACITY = 10 * BLOCK


async def test_models_pins_and_the_order_of_eviction_survive(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        for name in "abcd":
            await node.put(name, BLOCK)
        await node.get("b")
        await node.get("a")
        await node.cache.pin("replica", Key("d"))
        order = node.idle_first()
        assert order == ["c", "b", "a", "d"]
        for _ in range(2):
            await node.restart()
            assert node.idle_first() == order
            assert [view.holder for view in node.cache.pins()] == ["replica"]
        hits = {str(one.id.key): one.hits for one in node.cache.audit().generations()}
        assert hits == {"a": 1, "b": 1, "c": 0, "d": 1}


async def test_a_victim_that_came_back_is_remembered(root: Path) -> None:
    """Recency is written down while it is being seized in vain."""
    async with running(root, CAPACITY) as node:
        used = await node.put("used", 4 * BLOCK)
        await node.put("other", 4 * BLOCK)
        await node.get("other")
        assert node.cache._memory is not None
        await node.cache._memory.flush()
        await node.get("used")
        await node.get("other")
        with (used.record.path / "used").open("rb"):
            hold = node.workers.arm(1, after=False)
            deleting = asyncio.create_task(node.cache.delete(Key("used")))
            await soon(hold.met.wait())
            await node.cache._memory.flush()
            hold.let_go()
            with pytest.raises(Exception, match="in use"):
                await soon(deleting)
        uses = {str(one.id.key): one.last_used for one in node.cache.audit().generations()}
        await node.restart()
        assert {str(one.id.key): one.last_used for one in node.cache.audit().generations()} == uses


async def test_content_that_came_again_is_not_remembered_from_before(root: Path) -> None:
    """As after a kill between the return and the next time recency is written down."""
    async with running(root, CAPACITY) as node:
        await node.put("again", BLOCK)
        await node.get("again")
        assert node.cache._memory is not None
        await node.cache._memory.flush()
        remembered = {path: path.read_bytes() for path in root.glob("history.db*")}
        await node.put("other", BLOCK)
        await node.cache.delete(Key("again"))
        await node.put("again", BLOCK)
        order = node.idle_first()
        await node.close()
        for path, data in remembered.items():
            path.write_bytes(data)
        await node.open()
        assert node.idle_first() == order == ["other", "again"]


async def two_generations(node: Node) -> None:
    """As a crash between a publication and the retirement of its predecessor leaves them."""
    old = await node.put("model", BLOCK, "old")
    await node.cache.pin("replica", KEY)
    await node.put("model", BLOCK, "new")
    await node.close()
    (old.record.path.parent / "superseded").unlink()


async def test_of_two_generations_the_later_is_current(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await two_generations(node)
        await node.open()
        (current,) = (one for one in node.cache.audit().idle_first())
        assert node.cache._context.models[current.id].manifest.sequence == 2
        assert node.usage.retired_models == 1
        # And from now on the other is known to be retired.
        await node.cache.delete(KEY)
        await node.restart()
        assert node.resident() == []
        assert node.usage.retired_models == 1


async def test_a_disk_that_is_full_does_not_keep_it_from_starting(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        await two_generations(node)

        def mark(*_: object) -> None:
            raise NoSpace("open of superseded", "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(Store, "mark_superseded", mark)
            await node.open()
        assert not list((root / "models").glob("*/superseded"))
        await node.cache._evictions.retirements.mark_again()
        assert list((root / "models").glob("*/superseded"))


async def test_what_is_retired_and_pinned_stays_so(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", BLOCK, "old")
        await node.cache.pin("replica", KEY)
        await node.put("model", BLOCK, "new")
        await node.restart()
        assert (node.usage.models, node.usage.retired_models) == (1, 1)
        await node.quiet()
        assert old.record.path.exists()
        await node.cache.unpin("replica", KEY)
        await node.quiet()
        assert not old.record.path.exists()


async def test_what_is_retired_and_kept_by_nobody_ends_without_being_an_eviction(
    root: Path,
) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("model", BLOCK, "old")
        with (old.record.path / "model").open("rb"):
            await node.put("model", BLOCK, "new")
            await node.close()
        await node.open()
        await soon(node.until(lambda: node.usage.retired == 0))
        await node.quiet()
        assert node.resident() == ["model"]
        assert sum(node.cache._context.counters.evictions.values()) == 0


# -- Lost databases ----------------------------------------------------------------------------


async def test_without_the_pins_nothing_is_evicted_until_the_loss_is_accepted(
    root: Path,
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", 8 * BLOCK)
        await node.cache.pin("replica", KEY)
        await node.close()
        (root / "state.db").unlink()
        for _ in range(2):  # nor after another start
            await node.open()
            with pytest.raises(Blocked) as blocked:
                await node.put("new", 8 * BLOCK)
            assert blocked.value.reason == "pins-unknown"
            assert not (await node.cache.snapshot()).pins_known
            await node.close()
        await node.open()
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=3600.0))
        while node.cache._admission.waiting == 0:
            await asyncio.sleep(0)
        await node.cache.accept_loss()
        await soon(coming)
        assert node.resident() == ["new"]
        await node.cache.accept_loss()  # does nothing
        await node.restart()
        assert node.cache.audit().pins_known


async def test_a_damaged_record_of_pins_is_a_loss(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", 8 * BLOCK)
        await node.close()
        (root / "state.db").write_bytes(b"not a database, and longer than a header" * 100)
        await node.open()
        assert not node.cache.audit().pins_known
        assert (root / "state.db.lost-1").exists()
        await node.cache.accept_loss()


async def test_the_loss_is_accepted_in_the_end_and_after_the_pins_taken_since(
    root: Path,
) -> None:
    """Even when the time was over before the start."""
    async with running(root, CAPACITY) as node:
        await node.put("model", 2 * BLOCK, "old")
        await node.close()
        (root / "state.db").unlink()
        await node.open()
        await node.cache.pin("replica", KEY)
        old = await node.get("model")
        await node.put("model", 2 * BLOCK, "new")
        await node.close()
        node.clock.advance(2 * STILL.accept_loss_after)
        await node.open()
        await soon(node.until(lambda: node.cache.audit().pins_known))
        await node.quiet()
        assert old.exists()
        assert node.usage.retired_models == 1


@pytest.mark.parametrize("how", ["missing", "damaged"])
async def test_the_history_is_disposable(root: Path, how: str) -> None:
    async with running(root, CAPACITY) as node:
        for name in "abc":
            await node.put(name, BLOCK)
        await node.get("a")
        await node.close()
        for path in root.glob("history.db*"):
            path.unlink()
        if how == "damaged":
            (root / "history.db").write_bytes(b"not a database" * 1000)
        await node.open()
        # In the order of publication, which is all that is known.
        assert node.idle_first() == ["a", "b", "c"]
        assert (await node.cache.evictions(10))[0] == []


# -- Other circumstances ---------------------------------------------------------------------------


async def test_a_smaller_budget_evicts_down(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        for name in "abcd":
            await node.put(name, 2 * BLOCK)
        await node.cache.pin("replica", Key("a"))
        await node.restart(capacity=5 * BLOCK)
        await soon(node.until(lambda: node.resident() == ["a", "d"]))
        await node.quiet()
        entries, _ = await node.cache.evictions(10)
        assert [(str(one.key), one.reason) for one in entries] == [("b", "budget"), ("c", "budget")]


async def test_a_smaller_budget_passes_over_what_is_in_use(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        paths = {name: (await node.put(name, 2 * BLOCK)).record.path for name in "abcd"}
        with (paths["a"] / "a").open("rb"):
            await node.restart(capacity=5 * BLOCK)
            await soon(node.until(lambda: node.resident() == ["a", "d"]))
            await node.quiet()


async def test_what_pins_kept_over_the_budget_goes_later(root: Path) -> None:
    options = replace(STILL, trim_interval=0.01)
    async with running(root, CAPACITY, options=options) as node:
        await node.put("a", 4 * BLOCK)
        await node.put("b", 4 * BLOCK)
        for name in "ab":
            await node.cache.pin("replica", Key(name))
        await node.restart(capacity=5 * BLOCK)
        await node.cache.unpin("replica", Key("a"))
        await soon(node.until(lambda: node.resident() == ["b"]))


async def test_a_disk_that_others_filled_is_evicted_down(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        for name in "abcd":
            await node.put(name, 2 * BLOCK)
        free = (await asyncio.to_thread(node.store.filesystem)).free
        # Others' files come and go meanwhile: as much as is here is short in any case.
        await node.restart(min_free=free + (1 << 30))
        await soon(node.until(lambda: node.resident() == []))
        await node.quiet()
        assert node.cache._context.counters.evictions["disk"] == 4


async def test_a_clock_that_was_set_back(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("a", BLOCK)
        await node.put("b", BLOCK)
        await node.restart(clock=FakeClock(5.0))
        assert node.clock.now() >= 1_000_000.0
        await node.put("c", BLOCK)
        await node.get("a")
        assert node.idle_first() == ["b", "c", "a"]


async def test_what_is_arriving_or_doomed_at_the_end_is_debris_at_the_start(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", 2 * BLOCK)
        await node.close()
        for place, name in (("incoming", "a" * 32), ("doomed", "b" * 32)):
            directory = root / place / name / "model"
            directory.mkdir(parents=True)
            (directory / "model").write_bytes(b"x" * 2 * BLOCK)
        (root / "models" / "notes.txt").write_text("mine")
        await node.open()
        assert "models/notes.txt" in (await node.cache.snapshot()).foreign
        await node.quiet()
        assert (root / "models" / "notes.txt").exists()
        (root / "models" / "notes.txt").unlink()


# -- Starts that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(1, 8))
async def test_a_start_that_fails_lets_everything_go(
    root: Path, nth: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    node = Node(root, CAPACITY)
    await node.open()
    await node.put("model", 2 * BLOCK)
    await node.close()
    node.prepare(await asyncio.to_thread(Store.open, root))
    node.workers.fail(nth, IoError(call="read", error="Input/output error"))
    with pytest.raises(IoError):
        await node.cache.start()
    assert node.cache.state != "ready"
    await node.close()
    async with running(root, CAPACITY) as after:
        assert after.resident() == ["model"]


async def test_a_root_has_one_owner(root: Path) -> None:
    async with running(root, CAPACITY):
        with pytest.raises(RootUnusable):
            await asyncio.to_thread(Store.open, root)


async def test_closing_twice_is_closing_once(root: Path) -> None:
    node = Node(root, CAPACITY)
    await node.open()
    await node.close()
    await node.cache.close()


# -- What is found damaged -------------------------------------------------------------------------


async def test_a_damaged_directory_counts_until_its_reader_is_done_and_is_journalled(
    root: Path,
) -> None:
    options = replace(STILL, trim_interval=0.02)
    async with running(root, CAPACITY, options=options) as node:
        path = (await node.put("broken", 3 * BLOCK)).record.path
        await node.put("model", BLOCK)
        await node.close()
        (path.parent / "manifest.json").write_bytes(b"not json")
        with (path / "broken").open("rb"):
            await node.open()
            assert node.resident() == ["model"]
            assert node.usage.doomed == 3 * BLOCK
            await node.cache.snapshot()
            assert path.exists()
        await soon(node.quiet())
        assert not path.exists()
        ((entry,), _) = await node.cache.evictions(10)
        assert (str(entry.key), entry.reason, entry.bytes) == ("broken", "damage", 3 * BLOCK)


async def test_a_damaged_directory_goes_once_a_loss_of_pins_is_accepted(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        path = (await node.put("broken", 3 * BLOCK)).record.path
        await node.put("model", BLOCK)
        await node.close()
        (path.parent / "manifest.json").write_bytes(b"not json")
        for name in root.glob("state.db*"):
            name.unlink()
        await node.open()
        assert node.usage.doomed == 3 * BLOCK
        await node.cache.accept_loss()
        await soon(node.quiet())
        assert not path.exists()
        assert node.cache._context.counters.evictions["damage"] == 1
