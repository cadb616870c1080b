"""What a SIGHUP changes, what waits for a restart, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.cache.node import BLOCK, running
from weightd.api import Token
from weightd.daemon.logs import Level
from weightd.daemon.reload import Reload
from weightd.settings import Budget, Settings, SettingsError, load, resolve_budget


class Rereader:
    """Reads one file, whatever stands in it by now."""

    def __init__(self, root: Path, config: Path) -> None:
        self._root = root
        self._config = config

    def write(self, **more: object) -> None:
        lines = [f'{name} = "{value}"\n' for name, value in more.items()]
        self._config.write_text("".join(lines))

    def __call__(self) -> tuple[Settings, Budget]:
        settings = load({"root": str(self._root), "config": str(self._config)}).settings
        return settings, resolve_budget(settings)


@pytest.fixture
def reread(root: Path, tmp_path: Path) -> Rereader:
    reader = Rereader(root, tmp_path / "weightd.toml")
    reader.write(capacity=100 * BLOCK, min_free=0)
    return reader


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """A reload sets the level of the whole process."""
    names = ("", "uvicorn", "asyncio")
    before = [logging.getLogger(name).level for name in names]
    yield
    for name, number in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(number)


def told(caplog: pytest.LogCaptureFixture, when: str) -> dict[str, str]:
    """The settings that the log says are others, and what they are."""
    lines = [one for one in caplog.records if one.message == f"SIGHUP: a setting {when}"]
    return {vars(one)["setting"]: vars(one)["value"] for one in lines}


async def test_what_can_change_changes_and_the_rest_is_told(
    root: Path, reread: Rereader, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, 100 * BLOCK) as node:
        for name in ("a", "b"):
            await node.put(name, 40 * BLOCK)
        reload = Reload(
            *await asyncio.to_thread(reread), reread, node.cache, Token(), Level("info")
        )
        changes = {"min_free": 1, "drain_timeout": "7s", "puts_limit": 3, "log_level": "info"}
        await asyncio.to_thread(partial(reread.write, capacity=50 * BLOCK, **changes))
        caplog.set_level(logging.INFO)
        await reload.reload()
        assert node.resident() == ["b"]
        assert node.cache._context.min_free == 1
        assert (reload.settings.drain_timeout, reload.settings.puts_limit) == (7.0, 32)
        assert told(caplog, "changes after a restart") == {"puts_limit": "3"}
        now = told(caplog, "has changed")
        assert now["drain_timeout"] == "7s"
        assert set(now) == {"capacity", "min_free", "drain_timeout"}
        caplog.clear()
        await asyncio.to_thread(partial(reread.write, capacity=50 * BLOCK, **changes))
        await reload.reload()
        assert told(caplog, "changes after a restart") == {"puts_limit": "3"}, "it still waits"
        assert "budget" not in caplog.text


async def test_what_fetches_live_by_changes(
    root: Path, reread: Rereader, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, 100 * BLOCK) as node:
        reload = Reload(
            *await asyncio.to_thread(reread), reread, node.cache, Token(), Level("info")
        )
        changes = {"allow_origins": "hf://org/", "fetch_bandwidth": "5MB", "fetch_concurrency": 2}
        await asyncio.to_thread(partial(reread.write, capacity=100 * BLOCK, **changes))
        caplog.set_level(logging.INFO)
        await reload.reload()
        options = node.cache._context.options
        assert options.trust.allowed == ("hf://org/",)
        assert (options.fetch_bandwidth, options.fetch_concurrency) == (5_000_000, 2)
        assert told(caplog, "has changed")["allow_origins"] == "hf://org/"
        assert not told(caplog, "changes after a restart")


async def test_what_is_preloaded_changes(
    root: Path, reread: Rereader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with http_origin() as origin:
        source = origin.file("m.bin", bytes(BLOCK))
        async with running(root, 100 * BLOCK) as node:
            reload = Reload(
                *await asyncio.to_thread(reread), reread, node.cache, Token(), Level("info")
            )
            config = tmp_path / "weightd.toml"
            before = await asyncio.to_thread(config.read_text)
            table = f'[[preload]]\nkey = "m"\nsource = "{source}"\nkeep = "forever"\n'
            await asyncio.to_thread(config.write_text, before + table)
            caplog.set_level(logging.INFO)
            await reload.reload()
            said = told(caplog, "has changed")
            assert said == {"preload": f"m from {source} (kept forever)"}
            (job,) = node.cache.fetching.views()
            async for event in node.cache.fetching.events(job.id):
                assert event is None or event.type in ("progress", "end")
            await node.cache.fetching.tidy()
            assert [view.holder for view in node.cache.pins()] == ["weightd:preload"]
            await asyncio.to_thread(config.write_text, before)
            await reload.reload()
            assert (node.cache.pins(), node.resident()) == ([], ["m"])


async def test_settings_with_anything_wrong_change_nothing(
    root: Path, reread: Rereader, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, 100 * BLOCK) as node:
        await node.put("a", 40 * BLOCK)
        reload = Reload(
            *await asyncio.to_thread(reread), reread, node.cache, Token(), Level("info")
        )
        before = reload.settings
        wrong = {"drain_timeout": "soon", "nonsense": 1}
        await asyncio.to_thread(partial(reread.write, capacity=10 * BLOCK, **wrong))
        await reload.reload()
        assert reload.settings is before
        assert node.resident() == ["a"]
        assert node.usage.capacity == 100 * BLOCK
        assert "drain_timeout" in caplog.text
        assert "nonsense" in caplog.text


async def test_of_a_socket_that_was_passed_no_restart_is_promised(
    root: Path, reread: Rereader, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root, 100 * BLOCK) as node:
        settings, budget = await asyncio.to_thread(reread)
        passed = frozenset({"listen"})
        reload = Reload(settings, budget, reread, node.cache, Token(), Level("info"), passed)
        changes = {"capacity": 100 * BLOCK, "listen": "127.0.0.1:9999", "puts_limit": 3}
        await asyncio.to_thread(partial(reread.write, **changes, min_free=0))
        caplog.set_level(logging.INFO)
        await reload.reload()
        assert told(caplog, "changes after a restart") == {"puts_limit": "3"}
        (line,) = (one for one in caplog.records if vars(one).get("setting") == "listen")
        assert "is not used" in line.message


@pytest.mark.parametrize("wanted", ["yes", "no"])
def test_a_root_on_the_system_disk_is_refused_where_a_mount_is_required(wanted: str) -> None:
    settings = load({"root": "/weightd-root", "require_mount": wanted}).settings
    if wanted == "no":
        assert resolve_budget(settings).min_free_share.text == "20%"
        return
    with pytest.raises(SettingsError, match="require_mount: /weightd-root is on the filesystem"):
        resolve_budget(settings)
