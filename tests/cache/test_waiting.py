"""Waiting for room while blocked: in turn, bounded, and woken by whatever makes room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import Paused, Whole, bytes_of
from tests.cache.node import BLOCK, STILL, Node, running, soon
from tests.polling import eventually
from weightd.cache import PutOutcome, PutTerms
from weightd.cache.admission import Want
from weightd.errors import Blocked, NotResident, TooLarge, TooMany
from weightd.ledger import Reservation
from weightd.model import Key

CAPACITY = 10 * BLOCK
LONG = 3600.0


async def pinned(node: Node) -> None:
    await node.put("pinned", 8 * BLOCK)
    await node.cache.pin("replica", Key("pinned"))


async def waiting(node: Node, count: int) -> None:
    """Until so many arrivals stand in the queue and none of them is deciding."""
    while node.cache._admission.waiting < count:
        await asyncio.sleep(0)
    for _ in range(3):
        await node.workers.disk(int)


async def test_an_unpin_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        await node.cache.unpin("replica", Key("pinned"))
        await soon(coming)
        assert node.resident() == ["new"]


async def test_what_waits_and_who_keeps_the_room_is_logged_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        # It looks again at each change, and there is no more to say.
        for _ in range(2):
            node.cache._context.changed.notify()
            await waiting(node, 1)
        await node.cache.unpin("replica", Key("pinned"))
        await soon(coming)
        (line,) = (one for one in caplog.records if "waits for room" in one.message)
        told = vars(line)
        assert (line.levelname, told["key"], told["bytes"]) == ("WARNING", "new", 8 * BLOCK)
        assert "replica (pinned)" in told["held_by"]


async def test_a_lease_that_lapses_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("pinned", 8 * BLOCK)
        await node.cache.pin("replica", Key("pinned"), ttl=60.0)
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        node.clock.advance(61.0)
        node.cache._context.changed.notify()
        await soon(coming)
        assert node.cache._context.counters.expired_pins == 1


async def test_an_arrival_that_is_given_up_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        body = Paused(bytes_of("stops", 8 * BLOCK), BLOCK)
        other = asyncio.create_task(node.cache.put(Key("other"), body, PutTerms(length=8 * BLOCK)))
        await soon(body.paused.wait())
        with pytest.raises(Blocked) as blocked:
            await node.put("new", 8 * BLOCK)
        assert blocked.value.reason == "arriving"
        assert blocked.value.arriving == 8 * BLOCK
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        other.cancel()
        await soon(asyncio.wait([other]))
        await soon(coming)


async def test_the_end_of_a_reader_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("read", 8 * BLOCK)
        async with node.cache.content(Key("read"), "read"):
            coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
            await waiting(node, 1)
        await soon(coming)


async def test_who_came_first_is_served_first(root: Path) -> None:
    """The second would fit at once, and is not let past a first that has waited long."""
    async with running(root, CAPACITY, options=replace(STILL, overtake=0.0)) as node:
        await pinned(node)
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        second = asyncio.create_task(node.put("second", 2 * BLOCK, wait=LONG))
        await waiting(node, 2)
        assert not second.done()
        await node.cache.unpin("replica", Key("pinned"))
        await soon(asyncio.gather(first, second))
        sequence = {
            str(one.id.key): node.cache._context.models[one.id].manifest.sequence
            for one in node.cache.audit().generations()
        }
        assert sequence.keys() == {"first", "second"}


async def test_who_does_not_wait_passes_those_who_do_for_a_while_and_costs_them_nothing(
    root: Path,
) -> None:
    options = replace(STILL, overtake=LONG)
    async with running(root, CAPACITY, options=options) as node:
        await node.put("idle", BLOCK)
        await node.put("pinned", 6 * BLOCK)
        await node.cache.pin("replica", Key("pinned"))
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await blocked_first(node)
        await node.put("quick", BLOCK)
        with pytest.raises(Blocked, match="1 arrival waits for room, in turn before this one"):
            await node.put("greedy", 3 * BLOCK)
        assert "idle" in node.resident()
        await node.cache.unpin("replica", Key("pinned"))
        await soon(first)


async def test_one_who_waits_passes_as_one_who_does_not(root: Path) -> None:
    """For a while, and into free bytes only: what needs an eviction stands behind."""
    async with running(root, CAPACITY, options=replace(STILL, overtake=LONG)) as node:
        await node.put("idle", BLOCK)
        await node.put("pinned", 6 * BLOCK)
        await node.cache.pin("replica", Key("pinned"))
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await blocked_first(node)
        await soon(node.put("quick", BLOCK, wait=LONG))
        greedy = asyncio.create_task(node.put("greedy", 3 * BLOCK, wait=LONG))
        await waiting(node, 2)
        assert "idle" in node.resident()
        await node.cache.unpin("replica", Key("pinned"))
        await soon(first)
        await soon(greedy)


async def test_what_can_never_fit_is_told_so_behind_one_who_waits(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await blocked_first(node)
        with pytest.raises(TooLarge):
            await soon(node.put("never", 11 * BLOCK, wait=LONG))
        await node.cache.unpin("replica", Key("pinned"))
        await soon(first)


async def test_the_small_do_not_starve_the_large(root: Path) -> None:
    """However many come, with and without waiting: those that were let past are an end to it."""
    async with running(root, CAPACITY, options=replace(STILL, overtake=0.05)) as node:
        await pinned(node)
        large = asyncio.create_task(node.put("large", CAPACITY, wait=LONG))
        await blocked_first(node)
        tasks = [
            asyncio.create_task(small_ones(node, number, wait, large))
            for number, wait in enumerate((0.0, 0.0, 0.01, 0.02))
        ]
        refused = node.cache._context.counters.rejections
        await eventually(lambda: sum(refused.values()) >= 20)
        await node.cache.unpin("replica", Key("pinned"))
        assert (await soon(large)).created
        for task in tasks:
            await soon(task)


async def small_ones(node: Node, number: int, wait: float, until: asyncio.Task[PutOutcome]) -> None:
    """One after the other, each in the place of any other."""
    count = 0
    while not until.done():
        count += 1
        with suppress(Blocked):
            await node.put(f"small-{number}-{count}", BLOCK, wait=wait)
        await asyncio.sleep(0)


async def test_nobody_passes_one_who_has_waited_long(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, overtake=0.0)) as node:
        await pinned(node)
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await blocked_first(node)
        with pytest.raises(Blocked):
            await node.put("quick", BLOCK)
        with pytest.raises(Blocked):
            await soon(node.put("patient", BLOCK, wait=0.05))
        await node.cache.unpin("replica", Key("pinned"))
        await soon(first)
        await node.put("quick", BLOCK)


async def blocked_first(node: Node) -> None:
    """Until the first in the queue was told that there is no room."""
    while node.cache._admission._queue.blocked_first() is None:
        await asyncio.sleep(0)


async def test_two_hundred_of_mixed_sizes_over_pins_that_come_and_go(root: Path) -> None:
    """All are served, those that wait in order of arrival, and no wake-up is lost."""
    async with running(root, CAPACITY, options=replace(STILL, overtake=0.0)) as node:
        chance = random.Random(3)
        await pinned(node)
        admitted: list[int] = []
        reserve = node.cache._admission._reserve

        async def noting(want: Want) -> Reservation:
            reservation = await reserve(want)
            admitted.append(int(want.key.name.partition("-")[2]))
            return reservation

        node.cache._admission._reserve = noting  # type: ignore[method-assign]
        sizes = [chance.choice((1, 1, 2, 3, 5, 10)) * BLOCK for _ in range(200)]
        waiters = []
        for number, size in enumerate(sizes):
            waiters.append(asyncio.create_task(node.put(f"m-{number}", size, wait=LONG)))
            await waiting_or_done(node, waiters)
        turning = asyncio.create_task(pins_come_and_go(node, chance))
        await node.cache.unpin("replica", Key("pinned"))
        done = await asyncio.wait_for(asyncio.gather(*waiters), 120.0)
        turning.cancel()
        await asyncio.wait([turning])
        assert all(outcome.created for outcome in done)
        assert admitted == sorted(admitted)
        assert len(admitted) == 200
        assert node.cache._admission.waiting == 0


@pytest.mark.parametrize("seed", range(3))
async def test_two_hundred_of_whom_each_has_its_own_bound(root: Path, seed: int) -> None:
    """Each is admitted or refused, never before its time; who never gives up is never refused."""
    chance = random.Random(seed)
    async with running(root, CAPACITY, options=replace(STILL, overtake=0.2)) as node:
        await pinned(node)
        turning = asyncio.create_task(pins_come_and_go(node, chance))
        bounds = [chance.choice((0.01, 0.1, 1.0, LONG)) for _ in range(200)]
        waiters = []
        for number, bound in enumerate(bounds):
            size = chance.choice((1, 1, 2, 3, 5, 10)) * BLOCK
            waiters.append(asyncio.create_task(answered(node, f"m-{number}", size, bound)))
            if number == 100:
                await node.cache.unpin("replica", Key("pinned"))
            await asyncio.sleep(chance.random() * 0.005)
        outcomes = await asyncio.wait_for(asyncio.gather(*waiters), 120.0)
        turning.cancel()
        await asyncio.wait([turning])
        admitted = [outcome for outcome in outcomes if outcome]
        assert len(admitted) > bounds.count(LONG)
        assert all(
            outcome for outcome, bound in zip(outcomes, bounds, strict=True) if bound == LONG
        )
        assert node.cache._admission.waiting == 0
        assert node.cache._context.counters.rejections["blocked"] == 200 - len(admitted)


async def answered(node: Node, key: str, size: int, bound: float) -> bool:
    """Whether it was admitted; a refusal does not come before its bound is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + bound
    try:
        await node.put(key, size, wait=bound)
    except Blocked:
        assert loop.time() >= until
        return False
    return True


async def waiting_or_done(node: Node, waiters: Sequence[asyncio.Task[PutOutcome]]) -> None:
    """Until the newest has its place in the queue."""
    while node.cache._admission.waiting + sum(one.done() for one in waiters) < len(waiters):
        await asyncio.sleep(0)


async def pins_come_and_go(node: Node, chance: random.Random) -> None:
    """Some model is pinned for a moment, again and again."""
    while True:
        resident = node.resident()
        if resident:
            key = Key(chance.choice(resident))
            try:
                await node.cache.pin("passing", key)
            except NotResident:
                continue
            await asyncio.sleep(chance.random() * 0.02)
            await node.cache.unpin("passing", key)
        await asyncio.sleep(chance.random() * 0.01)


async def test_one_that_gives_up_lets_the_next_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        second = asyncio.create_task(node.put("second", 2 * BLOCK, wait=LONG))
        await waiting(node, 2)
        first.cancel()
        await soon(second)
        assert first.cancelled()


async def test_in_the_end_it_is_refused_with_the_figures(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        body = Whole(b"")
        with pytest.raises(Blocked) as blocked:
            await soon(node.cache.put(Key("new"), body, PutTerms(length=8 * BLOCK, wait=0.05)))
        assert not body.entered
        assert [one.holder for one in blocked.value.holders] == ["replica"]
        assert node.cache._context.counters.rejections["blocked"] == 1
        assert node.cache._admission.waiting == 0


async def test_what_can_never_fit_does_not_wait(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(TooLarge):
            await soon(node.put("new", 11 * BLOCK, wait=LONG))


async def test_the_queue_has_a_limit(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, waiting=2)) as node:
        await pinned(node)
        waiters = [
            asyncio.create_task(node.put(f"new-{n}", 8 * BLOCK, wait=LONG)) for n in range(2)
        ]
        await waiting(node, 2)
        with pytest.raises(TooMany):
            await node.put("one-more", 8 * BLOCK, wait=LONG)
        for waiter in waiters:
            waiter.cancel()
        await soon(asyncio.wait(waiters))


async def test_a_crowd_that_is_let_in_begins_as_threads_get_free(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, transfers=1)) as node:
        await pinned(node)
        bodies = [Paused(bytes_of(n, 3 * BLOCK)) for n in range(2)]
        coming = []
        for number, body in enumerate(bodies):
            terms = PutTerms(length=3 * BLOCK, wait=LONG)
            coming.append(asyncio.create_task(node.cache.put(Key(f"m{number}"), body, terms)))
            await waiting(node, number + 1)
        await node.cache.unpin("replica", Key("pinned"))
        while node.usage.arrivals < 2:
            await node.workers.disk(int)
        # Once admitted they race for the thread; whoever has it, the other has not begun.
        pauses = [asyncio.create_task(body.paused.wait()) for body in bodies]
        await soon(asyncio.wait(pauses, return_when=asyncio.FIRST_COMPLETED))
        first, second = sorted(bodies, key=lambda body: not body.entered)
        assert (first.entered, second.entered) == (True, False)
        first.go_on()
        await soon(second.paused.wait())
        second.go_on()
        await asyncio.gather(*pauses)
        await soon(asyncio.gather(*coming))
