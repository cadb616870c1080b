"""The daemon's life: open, listen, answer, drain, close."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiofiles
import uvloop

from weightd.api import Desk, Limits, Token, create_app, protocol_of
from weightd.api import Door as DoorName
from weightd.cache import WeightCache
from weightd.cache.records import Snapshot
from weightd.daemon.banner import Whereabouts, banner, notes
from weightd.daemon.door import Door
from weightd.daemon.limits import connections_limit, raise_open_files
from weightd.daemon.listeners import UnixDoor, open_tcp, open_unix
from weightd.daemon.logs import set_up_logging
from weightd.daemon.notify import notify
from weightd.daemon.refusal import StartRefused
from weightd.daemon.reload import Read, Reload
from weightd.daemon.residency import Residency
from weightd.daemon.signals import Signals
from weightd.daemon.terms import cache_options, token_of, wishes
from weightd.errors import IoError, RootUnusable
from weightd.failpoints import Reach, from_environment
from weightd.settings import Budget, Listen, Settings, on_system_disk
from weightd.store import Store

log = logging.getLogger(__name__)

_LAST_ANSWERS: Final = 2.0
"""Seconds for answers on their way out when the drain's own time is over."""

_CONTENT_THREADS: Final = 16

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

REPLICA_MODE: Final = 0o666
"""Whoever connects there is asked for by the kernel, so everybody may."""

Announce = Callable[[str], None]


def serve(settings: Settings, budget: Budget, announce: Announce, read: Read) -> None:
    """Be the daemon until a signal ends it.

    ``read`` reads the settings again, for a SIGHUP.
    ``announce`` gets the lines for a person once everything answers.
    Raises StartRefused with every reason.
    """
    set_up_logging(settings.log_format, settings.log_level)
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(settings, budget, announce, read))


async def _live(settings: Settings, budget: Budget, announce: Announce, read: Read) -> None:
    # Whoever reads content shares them, see `weightd.api.sending`.
    threads = ThreadPoolExecutor(_CONTENT_THREADS, thread_name_prefix="weightd-content")
    asyncio.get_running_loop().set_default_executor(threads)
    signals = Signals()
    signals.watch()
    reach = _reach()
    with ExitStack() as held:
        store, places = _take_places(settings, reach, held)
        log.info("starting on %s", settings.root)
        async with aiofiles.open(_BOOT_ID) as file:
            boot_id = (await file.read()).strip()
        cache = WeightCache(
            store,
            capacity=budget.capacity,
            min_free=budget.min_free,
            boot_id=boot_id,
            options=cache_options(settings),
            reach=reach,
        )
        token = Token(_token(settings))
        reload = Reload(settings, budget, read, cache, token)
        doors = _doors(settings, cache, places, token)
        async with AsyncExitStack() as life:
            # It is closed after the doors, when whatever its callers had under way has ended.
            life.push_async_callback(cache.close)
            await life.enter_async_context(_answering(doors, signals.stop))
            with _standing_for_good():
                await _start(cache, settings)
            residency = Residency(cache, settings.node_labels, settings.textfile)
            await life.enter_async_context(residency.told())
            snapshot = await cache.snapshot()
            _announce(_whereabouts(settings, snapshot, places), settings, announce)
            notify("READY=1")
            async with reload.watching(signals.hung_up):
                await signals.stop.wait()
            notify("STOPPING=1")
            await _drain(cache, doors, reload.settings.drain_timeout)
    log.info("stopped")


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


# -- Places: the root and the sockets ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Places:
    """Where the doors are; those that are off are None."""

    admin: UnixDoor
    replica: UnixDoor | None
    listener: socket.socket | None
    api: socket.socket | None


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
    places = _take_doors(settings, held, problems)
    if store is None or places is None:
        raise StartRefused(*problems)
    return store, places


def _take_doors(settings: Settings, held: ExitStack, problems: list[str]) -> Places | None:
    """Bind every socket; None when any cannot be, for reasons that are added to ``problems``."""
    before = len(problems)
    admin = replica = listener = api = None
    try:
        admin = open_unix(settings.socket, settings.socket_mode, settings.socket_group)
        held.callback(admin.close)
    except StartRefused as error:
        problems.extend(error.problems)
    try:
        if settings.replica_socket is not None:
            replica = open_unix(settings.replica_socket, REPLICA_MODE, None, "replica_socket")
            held.callback(replica.close)
    except StartRefused as error:
        problems.extend(error.problems)
    try:
        if settings.listen is not None:
            listener = held.enter_context(open_tcp(settings.listen))
    except StartRefused as error:
        problems.extend(error.problems)
    try:
        if settings.api_listen is not None:
            api = held.enter_context(open_tcp(settings.api_listen, "api_listen"))
    except StartRefused as error:
        problems.extend(error.problems)
    if admin is None or len(problems) > before:
        return None
    return Places(admin, replica, listener, api)


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
    desk = Desk(cache, limits, token)
    where = f"the admin socket ({places.admin.path})"
    doors = [_door(desk, "admin", places.admin.socket, where)]
    if places.replica is not None:
        doors.append(_door(desk, "replica", places.replica.socket, where))
    if settings.listen is not None and places.listener is not None:
        # Without a token only a listener that the network cannot reach shows what is here.
        kind: Final = "read-only" if settings.listen.loopback else "public"
        doors.append(_door(desk, kind, places.listener, where))
    if places.api is not None:
        doors.append(_door(desk, "network", places.api, where))
    return doors


def _door(desk: Desk, name: DoorName, listener: socket.socket, admin: str) -> Door:
    """``admin`` says where the admin socket is, for those who are refused here."""
    return Door(create_app(desk, name, admin=admin), listener, protocol_of(desk, name))


@asynccontextmanager
async def _answering(doors: list[Door], stop: asyncio.Event) -> AsyncIterator[None]:
    """Answer at every door; leaving waits until each has sent its last response.

    A door that closes by itself stops the daemon, which then raises what closed it.
    """
    servers = [asyncio.create_task(door.answer(), name="door") for door in doors]
    for server in servers:
        server.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        for door in doors:
            door.leave(_LAST_ANSWERS)
        await asyncio.gather(*servers)


# -- Beginning and end ---------------------------------------------------------------


def _address(listener: socket.socket | None) -> str | None:
    if listener is None:
        return None
    host, port = listener.getsockname()[:2]
    return str(Listen(host, port))


def _open_token(file: Path | None) -> Path | None:
    """The token's file if everybody may read it, as far as its own mode says."""
    try:
        return file if file is not None and file.stat().st_mode & stat.S_IROTH else None
    except OSError:
        return None


def _whereabouts(settings: Settings, snapshot: Snapshot, places: Places) -> Whereabouts:
    return Whereabouts(
        root=snapshot.root,
        socket=settings.socket,
        replica_socket=settings.replica_socket,
        listener=_address(places.listener),
        api=_address(places.api),
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


def _announce(at: Whereabouts, settings: Settings, announce: Announce) -> None:
    if settings.log_format == "text":
        announce(banner(at))
        return
    figures = {name: getattr(at, name) for name in Whereabouts.__slots__}
    log.info("ready", extra=figures)
    for note in notes(at):
        log.warning("%s", note)


async def _drain(cache: WeightCache, doors: list[Door], seconds: float) -> None:
    """Readiness goes, nothing new arrives, and what is under way may finish for a while."""
    cache.drain()
    # Some of it goes on without a caller: what is committed, what is adopted.
    asyncio.get_running_loop().call_later(seconds, cache.cut_short)
    under_way = [request for door in doors for request in door.under_way()]
    log.info("draining", extra={"under_way": len(under_way), "seconds": seconds})
    if not under_way:
        return
    _, late = await asyncio.wait(under_way, timeout=seconds)
    if late:
        log.warning("requests are cut off: they did not finish", extra={"late": len(late)})
        for door in doors:
            door.cut_off()
