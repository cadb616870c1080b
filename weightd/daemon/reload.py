"""SIGHUP: read the settings again, and live by those that can change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from weightd.api import Token
from weightd.cache import WeightCache
from weightd.daemon.beside import beside
from weightd.daemon.logs import Level
from weightd.daemon.notify import reloading
from weightd.daemon.terms import cache_options, token_of, wishes
from weightd.errors import IoError, WeightdError
from weightd.settings import Budget, Settings, SettingsError
from weightd.settings.options import written

log = logging.getLogger(__name__)

Read: TypeAlias = Callable[[], tuple[Settings, Budget]]
"""Reads flags, environment and file, as a start does.  Raises SettingsError."""

Tell: TypeAlias = Callable[[str], None]

CHANGEABLE: Final = frozenset(
    {
        "capacity",
        "min_free",
        "log_level",
        "drain_timeout",
        "token_file",
        "fetch_concurrency",
        "fetch_bandwidth",
        "partial_ttl",
        "allow_origins",
        "import_roots",
        "ca_file",
        "credentials",
        "preload",
    }
)

_CONFIG: Final = "config"
"""Where settings are read from is no setting to live by."""


class Reload:
    """The settings in force, which a SIGHUP may replace."""

    def __init__(
        self,
        settings: Settings,
        budget: Budget,
        read: Read,
        cache: WeightCache,
        token: Token,
        level: Level,
        passed: Collection[str] = (),
    ) -> None:
        """``passed`` are settings in whose place the service manager passed a socket."""
        self.settings = settings
        self._token = token
        self._budget = budget
        self._read = read
        self._cache = cache
        self._level = level
        self._passed = passed

    @asynccontextmanager
    async def watching(self, hung_up: asyncio.Event, tell: Tell) -> AsyncIterator[None]:
        """Read again each time ``hung_up`` is set, and ``tell`` the service manager so."""
        async with beside(self._forever(hung_up, tell), "reload"):
            yield

    async def _forever(self, hung_up: asyncio.Event, tell: Tell) -> None:
        while True:
            await hung_up.wait()
            hung_up.clear()
            tell(reloading())
            await self.reload()
            tell("READY=1")

    async def reload(self) -> None:
        """Read and apply; settings with anything wrong in them change nothing."""
        try:
            settings, budget = await asyncio.to_thread(self._read)
        except SettingsError as error:
            for problem in error.problems:
                log.error("SIGHUP: a setting is wrong: %s", problem)
            wrong = {"problems": len(error.problems)}
            log.error("SIGHUP: the settings are wrong, and those in force stay", extra=wrong)
            return
        changed = _differences(self.settings, settings)
        later = {name: text for name, text in changed.items() if name not in CHANGEABLE}
        kept = {name: getattr(self.settings, name) for name in later}
        self.settings = settings.model_copy(update=kept)
        self._level.settle(settings.log_level)
        self._cache.fetching.live_by(cache_options(self.settings))
        await self._read_token()
        await self._resize(budget)
        if "preload" in changed:
            await self._preload()
        for name, text in changed.items():
            when = self._when(name)
            log.info("SIGHUP: a setting %s", when, extra={"setting": name, "value": text})
        if not changed:
            log.info("SIGHUP: no setting has changed")

    def _when(self, name: str) -> str:
        """What becomes of a setting that is another now."""
        if name in self._passed:
            return (
                "is not used: the service manager passed that socket, whose unit says where it is"
            )
        return "has changed" if name in CHANGEABLE else "changes after a restart"

    async def _resize(self, budget: Budget) -> None:
        """Bytes also change when the filesystem of which they are a share was resized."""
        before, self._budget = self._budget, budget
        if (budget.capacity, budget.min_free) == (before.capacity, before.min_free):
            return
        figures = {"capacity_bytes": budget.capacity, "min_free_bytes": budget.min_free}
        log.info("SIGHUP: the budget has changed", extra=figures)
        try:
            await self._cache.resize(budget.capacity, budget.min_free)
        except IoError as error:
            log.warning("SIGHUP: evicting down goes on later", extra={"reason": error.detail})

    async def _read_token(self) -> None:
        """Another may be in the same file."""
        try:
            self._token.replace(await asyncio.to_thread(token_of, self.settings))
        except ValueError as error:
            log.error("SIGHUP: the token in force stays", extra={"reason": f"token_file: {error}"})

    async def _preload(self) -> None:
        try:
            await self._cache.fetching.wish(wishes(self.settings))
        except WeightdError as error:
            log.warning("SIGHUP: the preloads go on as they were", extra={"reason": error.detail})


def _differences(before: Settings, after: Settings) -> dict[str, str]:
    """What each setting that differs is now, as it would be written."""
    return {
        name: written(name, getattr(after, name))
        for name in type(after).model_fields
        if name != _CONFIG and getattr(after, name) != getattr(before, name)
    }
