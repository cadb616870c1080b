"""The daemon's life: open, listen, answer, drain, close."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import aiofiles
import uvloop

from weightd import __version__
from weightd.api import Desk, Limits, Token, create_app, protocol_of
from weightd.api import Door as DoorName
from weightd.cache import WeightCache
from weightd.cache.records import Snapshot
from weightd.daemon.activation import take_passed
from weightd.daemon.banner import Whereabouts, banner, notes
from weightd.daemon.door import Door
from weightd.daemon.heart import Heart, starting, watchdog_here
from weightd.daemon.limits import connections_limit, raise_open_files
from weightd.daemon.listeners import TcpDoor, UnixDoor
from weightd.daemon.logs import Level, set_up_logging
from weightd.daemon.notify import extended
from weightd.daemon.places import Places, passed_otherwise, passed_settings, take_doors
from weightd.daemon.refusal import StartRefused
from weightd.daemon.reload import Read, Reload
from weightd.daemon.repeats import Repeats
from weightd.daemon.residency import Residency
from weightd.daemon.signals import Signals
from weightd.daemon.terms import cache_options, token_of, wishes
from weightd.errors import IoError, RootUnusable
from weightd.failpoints import Reach, from_environment
from weightd.settings import Budget, Settings, on_system_disk
from weightd.store import Store

log = logging.getLogger(__name__)

_LAST_ANSWERS: Final = 2.0
"""Seconds for answers on their way out when the drain's own time is over."""

_ENDING_SECONDS: Final = 30.0
"""Seconds beside the drain's own that a stop may take: connections that say nothing, answers on
their way out, and what is remembered on its way to the disk."""

_CONTENT_THREADS: Final = 16

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

Announce = Callable[[str], None]


def serve(settings: Settings, budget: Budget, announce: Announce, read: Read) -> None:
    """Be the daemon until a signal ends it.

    ``read`` reads the settings again, for a SIGHUP.
    ``announce`` gets the lines for a person once everything answers.
    Raises StartRefused with every reason.
    """
    repeats = set_up_logging(settings.log_format, settings.log_level)
    # Whoever ends it for not answering (a watchdog's SIGABRT) leaves where each thread stood.
    faulthandler.enable()
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(settings, budget, announce, read, repeats))


async def _live(
    settings: Settings, budget: Budget, announce: Announce, read: Read, repeats: Repeats
) -> None:
    # Whoever reads content shares them, see `weightd.api.sending`.
    threads = ThreadPoolExecutor(_CONTENT_THREADS, thread_name_prefix="weightd-content")
    asyncio.get_running_loop().set_default_executor(threads)
    began = asyncio.get_running_loop().time()
    level = Level(settings.log_level)
    signals = Signals(level)
    signals.watch()
    reach = _reach()
    with ExitStack() as held:
        store, places = _take_places(settings, reach, held)
        log.info("starting", extra={"root": settings.root, "version": __version__})
        cache = await _cache_of(store, settings, budget, reach)
        token = Token(_token(settings))
        heart = Heart(cache, watchdog_here())
        reload = Reload(settings, budget, read, cache, token, level, passed_settings(places))
        doors = _doors(settings, cache, places, token)
        async with AsyncExitStack() as life:
            await life.enter_async_context(repeats.telling())
            # It is closed after the doors, when whatever its callers had under way has ended.
            life.push_async_callback(cache.close)
            # Who connects to a socket that was passed waits in the kernel until there is an answer;
            # at the others he would be refused before they are bound, and is told it starts after.
            bound = [door for door in doors if not door.passed]
            await life.enter_async_context(_answering(bound, signals.stop))
            async with starting(f"reading what is in {settings.root}"):
                with _standing_for_good():
                    await _start(cache, settings)
                snapshot = await cache.snapshot()
            residency = Residency(cache, settings.node_labels, settings.textfile)
            await life.enter_async_context(residency.told())
            passed = [door for door in doors if door.passed]
            await life.enter_async_context(_answering(passed, signals.stop))
            seconds = asyncio.get_running_loop().time() - began
            _announce(_whereabouts(settings, snapshot, places), settings, announce, seconds)
            heart.say("READY=1")
            async with heart.beating():
                async with reload.watching(signals.hung_up, heart.say):
                    await signals.stop.wait()
                await _part(cache, doors, heart, reload.settings.drain_timeout)
    log.info("stopped")


async def _cache_of(store: Store, settings: Settings, budget: Budget, reach: Reach) -> WeightCache:
    async with aiofiles.open(_BOOT_ID) as file:
        boot_id = (await file.read()).strip()
    return WeightCache(
        store,
        capacity=budget.capacity,
        min_free=budget.min_free,
        boot_id=boot_id,
        options=cache_options(settings),
        reach=reach,
    )


@contextmanager
def _standing_for_good() -> Iterator[None]:
    """Collect no garbage while thousands of models are made, nor look through them ever after.

    Each collection would go through all of them, while every request waits.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _start(cache: WeightCache, settings: Settings) -> None:
    try:
        await cache.start()
        await cache.fetching.wish(wishes(settings))
    except (RootUnusable, IoError) as error:
        raise StartRefused(str(error)) from error


# -- The root and the sockets ------------------------------------------------------


def _take_places(settings: Settings, reach: Reach, held: ExitStack) -> tuple[Store, Places]:
    """Take root and sockets, or tell everything that is in the way of any of them."""
    problems: list[str] = []
    store = None
    try:
        store = held.enter_context(
            Store.open(
                settings.root,
                file_mode=settings.file_mode,
                group=settings.group,
                reach=reach,
            )
        )
    except RootUnusable as error:
        problems.append(str(error))
    places = None
    try:
        passed = take_passed(os.environ, os.getpid())
        held.callback(passed.close)
        places = take_doors(settings, passed, held, problems)
    except StartRefused as error:
        problems.extend(error.problems)
    if store is None or places is None:
        raise StartRefused(*problems)
    return store, places


def _token(settings: Settings) -> str | None:
    try:
        return token_of(settings)
    except ValueError as error:
        raise StartRefused(f"token_file: {error}") from None


def _reach() -> Reach:
    try:
        return from_environment(os.environ)
    except ValueError as error:
        raise StartRefused(str(error)) from None


# -- Doors ---------------------------------------------------------------------------


def _doors(settings: Settings, cache: WeightCache, places: Places, token: Token) -> list[Door]:
    """One server per socket, over one desk, so that limits hold over all of them."""
    limits = Limits(
        puts=settings.puts_limit,
        connections=connections_limit(),
        idle_timeout=settings.idle_timeout,
    )
    desk = Desk(cache, limits, token, places.admin.path)
    where = f"the admin socket ({places.admin.path})"
    doors = [_door(desk, "admin", places.admin, where)]
    if places.replica is not None:
        doors.append(_door(desk, "replica", places.replica, where))
    if places.listener is not None:
        # Without a token only a listener that the network cannot reach shows what is here.
        kind: Final = "read-only" if places.listener.address.loopback else "public"
        doors.append(_door(desk, kind, places.listener, where))
    if places.api is not None:
        doors.append(_door(desk, "network", places.api, where))
    return doors


def _door(desk: Desk, name: DoorName, place: UnixDoor | TcpDoor, admin: str) -> Door:
    """``admin`` says where the admin socket is, for those who are refused here."""
    app = create_app(desk, name, admin=admin)
    return Door(app, place.socket, protocol_of(desk, name), place.passed)


@asynccontextmanager
async def _answering(doors: list[Door], stop: asyncio.Event) -> AsyncIterator[None]:
    """Answer at every door; leaving waits until each has sent its last response.

    A door that closes by itself stops the daemon, which then raises what closed it.
    """
    servers = [asyncio.create_task(door.answer(), name="door") for door in doors]
    for server in servers:
        server.add_done_callback(lambda _: stop.set())
    try:
        for server, door in zip(servers, doors, strict=True):
            opened = asyncio.ensure_future(door.opened.wait())
            await asyncio.wait({opened, server}, return_when=asyncio.FIRST_COMPLETED)
            opened.cancel()
        yield
    finally:
        for door in doors:
            door.leave(_LAST_ANSWERS)
        await asyncio.gather(*servers)


# -- Beginning and end ---------------------------------------------------------------


def _open_token(file: Path | None) -> Path | None:
    """The token's file if everybody may read it, as far as its own mode says."""
    try:
        return file if file is not None and file.stat().st_mode & stat.S_IROTH else None
    except OSError:
        return None


def _whereabouts(settings: Settings, snapshot: Snapshot, places: Places) -> Whereabouts:
    return Whereabouts(
        root=snapshot.root,
        socket=places.admin.path,
        replica_socket=None if places.replica is None else places.replica.path,
        listener=None if places.listener is None else places.listener.where,
        api=None if places.api is None else places.api.where,
        passed_otherwise=passed_otherwise(settings, places),
        open_token=_open_token(settings.token_file),
        capacity=snapshot.capacity_bytes,
        min_free=snapshot.filesystem.min_free,
        models=snapshot.models,
        resident=snapshot.resident_bytes,
        foreign=snapshot.foreign,
        system_disk=on_system_disk(snapshot.root),
        filesystem_total=snapshot.filesystem.total,
        others=snapshot.filesystem.others,
    )


def _announce(at: Whereabouts, settings: Settings, announce: Announce, seconds: float) -> None:
    """Say that it is ready, ``seconds`` after it began: to a person, and in the log."""
    if settings.log_format == "text":
        announce(banner(at))
        figures = {"models": at.models, "resident": at.resident, "capacity": at.capacity}
    else:
        figures = {name: getattr(at, name) for name in Whereabouts.__slots__}
    log.info("ready", extra={**figures, "seconds": round(seconds, 3)})
    if settings.log_format == "json":
        for note in notes(at):
            log.warning("%s", note)


async def _part(cache: WeightCache, doors: list[Door], heart: Heart, seconds: float) -> None:
    """Tell everybody that it stops, and drain for at most ``seconds``."""
    cache.part()
    # Where sockets were passed, who is connected may still ask, and who is not yet is taken by the
    # next instance; elsewhere there is nobody to take him, and he is told that this one drains.
    heard = [one for door in doors if door.passed for one in await door.hand_over()]
    heart.say("STOPPING=1", extended(seconds + _ENDING_SECONDS))
    await _drain(cache, doors, heard, seconds)


async def _drain(
    cache: WeightCache, doors: list[Door], heard: list[asyncio.Future[None]], seconds: float
) -> None:
    """Readiness goes, nothing new arrives, and what is under way may finish for a while."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    # Some of it goes on without a caller: what is committed, what is adopted.
    loop.call_at(end, cache.cut_short)
    if heard:
        await asyncio.wait(heard)
    cache.drain()
    under_way = [request for door in doors for request in door.under_way()]
    log.info("draining", extra={"under_way": len(under_way), "seconds": seconds})
    if not under_way:
        return
    _, late = await asyncio.wait(under_way, timeout=max(0.0, end - loop.time()))
    if late:
        log.warning("requests are cut off: they did not finish", extra={"late": len(late)})
        for door in doors:
            door.cut_off()
