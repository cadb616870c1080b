"""A task that is cancelled leaves nothing behind: no lease, no upload, no descriptor."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.api.origin import http_origin
from tests.client.test_hold import is_locked
from tests.polling import PAUSE, WITHIN
from tests.system.daemon import Daemon
from weightd.client import AsyncClient
from weightd.client.putting import Sent
from weightd.client.records import Model


async def cancelled(act: Coroutine[Any, Any, object], when: Callable[[], object]) -> None:
    """Begin something, and cancel it when it has come so far."""
    task = asyncio.create_task(act)
    async with asyncio.timeout(WITHIN):
        while not await asyncio.to_thread(when):
            assert not task.done(), task
            await asyncio.sleep(PAUSE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def pins_of(daemon: Daemon, key: str) -> list[Any]:
    return [one for one in daemon.client.get("/v1/pins")["pins"] if one["key"] == key]


@pytest.mark.parametrize("step", ["_lock", "_must_be_seen"])
async def test_a_hold(daemon: Daemon, key: str, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    async with AsyncClient(daemon.socket) as client:
        model = await client.put(key, b"x")
        if step == "_lock":
            monkeypatch.setattr("weightd.client.holding._lock", lambda descriptor: False)
        else:
            monkeypatch.setattr("weightd.client.holding._is_seen", unseen)
        await cancelled(client.take_hold(key), lambda: pins_of(daemon, key))
        assert pins_of(daemon, key) == []
        assert not is_locked(model.path)
        # The client is as good as before.
        assert (await client.status()).pins >= 0


async def test_a_hold_that_is_cancelled_twice(
    daemon: Daemon, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a timeout, and again by who waits for that to be over, while the disk takes its time."""
    opening, may_go_on = threading.Event(), threading.Event()

    def slowly(model: Model) -> int:
        opening.set()
        assert may_go_on.wait(WITHIN)
        return os.open(model.path, os.O_RDONLY)

    monkeypatch.setattr("weightd.client.holding._opened", slowly)
    async with AsyncClient(daemon.socket) as client:
        model = await client.put(key, b"x")
        task = asyncio.create_task(client.take_hold(key))
        assert await asyncio.to_thread(opening.wait, WITHIN)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        # No descriptor is left either, which every test is asked about.
        assert pins_of(daemon, key) == []
        assert not is_locked(model.path)


@pytest.mark.parametrize("listens", [False, True])
async def test_who_leaves_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    """However long the daemon was to be waited for: it is not there, or says nothing."""
    monkeypatch.setattr("weightd.client.asking.PARTING_SECONDS", 0.1)
    place = tmp_path / "weightd.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        if listens:
            listener.bind(str(place))
            listener.listen()
        async with AsyncClient(place, patience=24 * 3600, expected=True) as client:
            task = asyncio.create_task(client.take_hold("m"))
            await asyncio.sleep(PAUSE)
            task.cancel()
            async with asyncio.timeout(WITHIN / 2):
                with pytest.raises(asyncio.CancelledError):
                    await task


def unseen(*_: object) -> Any:
    """The daemon sees no hold."""
    yield from ()
    return False


async def test_a_put(daemon: Daemon, key: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(b"weights")
    async with AsyncClient(daemon.socket) as client:

        def stop(sent: Sent) -> None:
            assert sent.bytes < sent.whole, "it went on"
            task.cancel()

        task = asyncio.create_task(client.put(key, tmp_path, progress=stop))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert daemon.client.get("/v1/uploads")["uploads"] == []
        assert not await client.peek(key)


async def test_a_fetch_goes_on_without_its_caller(daemon: Daemon, key: str) -> None:
    with http_origin() as origin:
        source = origin.listing("m", weights=b"weights")
        origin.flowing.clear()
        async with AsyncClient(daemon.socket) as client:

            def downloading() -> bool:
                jobs = daemon.client.get("/v1/fetches")["fetches"]
                return any(one["key"] == key and one["state"] == "downloading" for one in jobs)

            await cancelled(client.fetch(key, source), downloading)
            origin.flowing.set()
            model = await client.fetch(key, source)
        assert origin.bodies("weights") == 1
        assert Path(model.path, "weights").read_bytes() == b"weights"


async def test_the_context_of_a_hold(daemon: Daemon, key: str) -> None:
    async with AsyncClient(daemon.socket) as client:
        model = await client.put(key, b"x")
        held = asyncio.Event()

        async def serve() -> None:
            async with client.hold(key):
                held.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(serve())
        await held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pins_of(daemon, key) == [] or [one["kind"] for one in pins_of(daemon, key)] == [
            "hold"
        ]
        assert not is_locked(model.path)
