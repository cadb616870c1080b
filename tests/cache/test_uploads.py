"""Uploads beside all else that goes on: twice at once, ended under way, refused, with odd files."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.origin import Origin
from tests.cache import fetch_stories
from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node, in_memory, running, soon
from tests.cache.stories import CAPACITY, is_as_good_as_new
from tests.cache.upload_stories import FILES, KEY, OWNER, begin, fill
from weightd.cache import Announced, Offered
from weightd.errors import Draining, InvalidRequest, IoError, TooLarge, UnknownUpload
from weightd.model import Key


async def begun(node: Node, files: dict[str, bytes] | None = None) -> str:
    """One that is whole, and not committed."""
    view = await begin(node, files=files)
    fill(view, files)
    return view.id


async def test_it_is_committed_twice_at_once(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        id = await begun(node)
        uploads = node.cache.uploads
        both = await asyncio.gather(uploads.commit(id), uploads.commit(id))
        assert [one.record.manifest.digest for one in both] == 2 * [both[0].record.manifest.digest]
        assert not (await uploads.commit(id)).created


async def test_what_has_gone_since_is_not_told_again(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        id = await begun(node)
        await node.cache.uploads.commit(id)
        await node.cache.delete(KEY)
        with pytest.raises(UnknownUpload):
            await node.cache.uploads.commit(id)


@pytest.mark.parametrize("whole", [True, False])
async def test_it_is_given_up_while_it_is_committed(root: Path, whole: bool) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view)
        if not whole:
            (view.path / "weights").unlink()
        hold = node.workers.arm("take_over", after=False)
        committing = asyncio.ensure_future(node.cache.uploads.commit(view.id))
        await soon(hold.met.wait())
        cancelling = asyncio.ensure_future(node.cache.uploads.cancel(view.id))
        await asyncio.sleep(0)
        hold.let_go()
        await soon(asyncio.wait([committing, cancelling]))
        if whole:
            assert committing.result().created
            assert isinstance(cancelling.exception(), UnknownUpload)
        else:
            assert isinstance(committing.exception(), InvalidRequest)
            assert cancelling.exception() is None
        await is_as_good_as_new(node)


async def test_what_is_begun_may_end_while_it_drains(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        id = await begun(node)
        hold = node.workers.arm("take_over", after=True)
        committing = asyncio.ensure_future(node.cache.uploads.commit(id))
        await soon(hold.met.wait())
        node.cache.drain()
        with pytest.raises(Draining):
            await begin(node)
        hold.let_go()
        assert (await soon(committing)).created


async def test_it_is_committed_while_the_cache_closes(root: Path) -> None:
    """That is waited for, and found by the next start."""
    node = Node(root, CAPACITY)
    await node.open()
    id = await begun(node)
    hold = node.workers.arm("take_over", after=False)
    committing = asyncio.ensure_future(node.cache.uploads.commit(id))
    await soon(hold.met.wait())
    closing = asyncio.ensure_future(node.close())
    await asyncio.sleep(0)
    hold.let_go()
    await soon(closing)
    assert committing.result().created
    await node.open()
    try:
        assert node.resident() == [str(KEY)]
        await node.agree()
    finally:
        await node.close()


async def test_who_reads_for_long_is_cut_short_and_all_is_as_it_was(
    root: Path, tmp_path: Path
) -> None:
    """What is to end soon waits for no hash of a large model."""
    place = tmp_path / "weights"
    place.write_bytes(bytes_of("mine", 3 * BLOCK))
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view)
        node.cache.cut_short()
        with pytest.raises(Draining):
            await soon(node.cache.uploads.commit(view.id))
        (view.path / "weights").write_bytes(FILES["weights"])
        offered = Offered(Announced("weights", 3 * BLOCK), str(place))
        with pytest.raises(Draining):
            await soon(node.cache.adoptions.adopt(Key("m"), [offered], OWNER.uid))
        assert place.read_bytes() == bytes_of("mine", 3 * BLOCK)
        await node.cache.uploads.cancel(view.id)
        assert node.usage.reserved == 0


async def test_a_directory_that_was_not_announced_is_refused(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view)
        (view.path / "a" / "more").mkdir()
        with pytest.raises(InvalidRequest, match="directory a/more"):
            await node.cache.uploads.commit(view.id)
        (view.path / "a" / "more").rmdir()
        assert (await node.cache.uploads.commit(view.id)).created


@pytest.mark.parametrize("act", ["put", "delete", "fetch"])
async def test_the_same_key_by_another_way(root: Path, origin: Origin, act: str) -> None:
    """The last to come is the one that stays."""
    async with running(root, 3 * CAPACITY) as node:
        node.origin = origin
        await node.put("org/model", BLOCK)
        id = await begun(node)
        if act == "put":
            await node.put("org/model", 2 * BLOCK, "other")
        elif act == "delete":
            await node.cache.delete(KEY)
        else:
            await fetch_stories.fetch(node)
        assert (await node.cache.uploads.commit(id)).created
        place = await node.get("org/model")
        assert {name: (place / name).read_bytes() for name in FILES} == FILES
        assert (node.usage.models, node.usage.resident) == (1, 4 * BLOCK)


@pytest.mark.parametrize("when", ["before", "while it is read"])
async def test_a_smaller_budget_refuses_it(root: Path, when: str) -> None:
    async with running(root, CAPACITY) as node:
        id = await begun(node)
        hold = node.workers.arm("take_over", after=False)
        if when == "before":
            await node.cache.resize(2 * BLOCK, 0)
        committing = asyncio.ensure_future(node.cache.uploads.commit(id))
        if when != "before":
            await soon(hold.met.wait())
            await node.cache.resize(2 * BLOCK, 0)
            hold.let_go()
        with pytest.raises(TooLarge):
            await soon(committing)
        await node.cache.uploads.tidy()
        assert (node.usage.reserved, node.usage.used) == (0, 0)
        await node.cache.resize(CAPACITY, 0)


def sparse(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(3 * BLOCK - 1)


def ahead(place: Path) -> None:
    """More blocks than its length needs, and than were announced."""
    place.write_bytes(FILES["weights"])
    subprocess.run(["fallocate", "-n", "-l", str(64 * BLOCK), str(place)], check=True)


@pytest.mark.parametrize("write", [sparse, ahead])
async def test_a_file_has_the_blocks_of_its_length(
    root: Path, write: Callable[[Path], None]
) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view)
        write(view.path / "weights")
        await node.cache.uploads.commit(view.id)
        await node.agree()
        assert node.usage.used == 4 * BLOCK


async def test_holes_are_not_counted(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view, {"a/b": FILES["a/b"]})
        sparse(view.path / "weights")
        await node.cache.uploads.tidy()
        await node.agree()
        assert node.usage.used == BLOCK
        await node.restart()
        await node.agree()


async def test_thousands_of_files(root: Path) -> None:
    files = {f"{n % 7}/{n % 5}/{n}": b"" for n in range(2000)} | {"x": b"x"}
    async with running(root, CAPACITY) as node:
        announced = await begin(node, files=files)
        for path, body in files.items():
            place = announced.path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(body)
        outcome = await soon(node.cache.uploads.commit(announced.id))
        assert len(outcome.record.manifest.files) == len(files)


@pytest.mark.parametrize(
    ("make", "told"),
    [(Path.touch, "2 were announced"), (Path.mkdir, "directories are in it")],
    ids=["files", "directories"],
)
async def test_far_more_than_was_announced_ends_it(
    root: Path, make: Callable[[Path], None], told: str
) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        for n in range(1100):
            make(view.path / str(n))
        await node.cache.uploads.tidy()
        assert not node.cache.uploads.views()
        with pytest.raises(InvalidRequest, match=told):
            await node.cache.uploads.commit(view.id)


async def test_what_is_hidden_far_below_ends_it(root: Path) -> None:
    """Nobody writes without bound where it is not looked, and all of it goes."""
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view)
        deep = view.path.joinpath(*70 * "d")
        deep.mkdir(parents=True)
        (deep / "more").write_bytes(bytes(CAPACITY))
        await node.cache.uploads.tidy()
        assert not node.cache.uploads.views()
        with pytest.raises(InvalidRequest, match="deeper than any model"):
            await node.cache.uploads.commit(view.id)
        await is_as_good_as_new(node)
        assert not list((root / "doomed").iterdir())


async def test_a_name_that_is_no_text(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        fill(view)
        odd = os.path.join(os.fsencode(view.path), b"odd\n\xff")
        with open(odd, "wb"):
            pass
        with pytest.raises(InvalidRequest) as wrong:
            await node.cache.uploads.commit(view.id)
        wrong.value.detail.encode()
        assert "\\xff" in wrong.value.detail
        os.unlink(odd)
        await node.cache.uploads.commit(view.id)


async def test_one_that_nobody_begins_to_write_keeps_its_room_for_minutes(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await begin(node)
        node.clock.advance(node.options.upload_begun_within + 1.0)
        await node.cache.uploads.tidy()
        assert node.cache.uploads.views() == []
        assert node.usage.reserved == 0


async def test_whoever_goes_on_has_his_time_anew(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        view = await begin(node)
        ttl = node.options.upload_ttl
        fill(view, {"weights": bytes_of("grows", 1)})
        await node.cache.uploads.tidy()
        for blocks in (1, 2, 3):
            node.clock.advance(0.9 * ttl)
            fill(view, {"weights": bytes_of("grows", blocks * BLOCK)})
            await node.cache.uploads.tidy()
        # A clock that is set back ends nothing.
        node.clock.advance(-2.0 * ttl)
        await node.cache.uploads.tidy()
        assert len(node.cache.uploads.views()) == 1
        node.clock.advance(3.1 * ttl)
        with pytest.raises(UnknownUpload):
            await node.cache.uploads.commit(view.id)
        await node.cache.uploads.tidy()
        assert not node.cache.uploads.views()


async def test_one_that_the_disk_does_not_take_back_has_ended(root: Path) -> None:
    """It was published for a moment; its descriptors are gone, and it is not touched again."""
    in_the_way: list[Path] = []

    def reach(name: str) -> None:
        if name == "publish.manifest-flushed":
            in_the_way[:] = (root / "incoming").iterdir()
        if name == "publish.renamed":
            in_the_way[0].mkdir()
            (in_the_way[0] / "in-the-way").mkdir()
            raise OSError(errno.EIO, "Input/output error")

    async with running(root, CAPACITY, reach=reach) as node:
        id = await begun(node)
        with pytest.raises(IoError, match="after Input/output error") as failed:
            await node.cache.uploads.commit(id)
        assert not node.cache.uploads.views()
        with pytest.raises(IoError) as again:
            await node.cache.uploads.commit(id)
        assert again.value.detail == failed.value.detail
        node.reach = lambda name: None
        shutil.rmtree(in_the_way[0])
        await node.cache._evictions.let_damaged_go()
        await node.agree()


async def test_another_key_is_not_kept_waiting(root: Path) -> None:
    """While one is hashed, others begin, are looked at and end."""
    async with running(root, 3 * CAPACITY) as node:
        id = await begun(node)
        hold = node.workers.arm("take_over", after=False)
        committing = asyncio.ensure_future(node.cache.uploads.commit(id))
        await soon(hold.met.wait())
        other = await begin(node, Key("other"))
        fill(other)
        await soon(node.cache.uploads.tidy())
        assert (await soon(node.cache.uploads.commit(other.id))).created
        hold.let_go()
        assert (await soon(committing)).created


@pytest.mark.parametrize("trusted", [False, True])
async def test_what_was_read_leaves_memory_and_what_was_not_stays(
    root: Path, trusted: bool
) -> None:
    async with running(root, CAPACITY) as node:
        announced = [
            Announced(path, len(body), hashlib.sha256(body).hexdigest())
            for path, body in FILES.items()
        ]
        uploads = node.cache.uploads
        view = await uploads.begin(KEY, announced, OWNER, wait=0.0, trusted=trusted)
        fill(view)
        record = (await uploads.commit(view.id)).record
        left = await asyncio.to_thread(in_memory, Path(record.path))
        assert left == {path: len(body) if trusted else 0 for path, body in FILES.items()}
