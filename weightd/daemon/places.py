"""Where the doors are: each is bound as its setting says, or was passed (`daemon.activation`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeVar

from weightd.daemon.activation import Passed
from weightd.daemon.listeners import TcpDoor, UnixDoor, open_tcp, open_unix
from weightd.daemon.refusal import StartRefused
from weightd.settings import Listen, Settings

REPLICA_MODE: Final = 0o666
"""Whoever connects there is asked for by the kernel, so everybody may."""

D = TypeVar("D", UnixDoor, TcpDoor)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the doors are; those that are off are None."""

    admin: UnixDoor
    replica: UnixDoor | None
    listener: TcpDoor | None
    api: TcpDoor | None


def take_doors(
    settings: Settings, passed: Passed, held: ExitStack, problems: list[str]
) -> Places | None:
    """Take what was passed and bind the rest; ``held`` closes them.

    None when any cannot be had, for reasons that are added to ``problems``.
    """
    before = len(problems)
    if "api" in passed.sockets and settings.token_file is None:
        problems.append(
            "api: a socket of the whole API was passed, and it is not opened to the network "
            "without a token; give token_file, or stop that socket's unit"
        )

    def take(found: D | None, bind: Callable[[], D | None]) -> D | None:
        try:
            door = bind() if found is None else found
        except StartRefused as error:
            problems.extend(error.problems)
            return None
        if door is not None:
            held.callback(door.close)
        return door

    admin = take(passed.unix("admin"), lambda: _admin(settings))
    replica = take(passed.unix("replica"), lambda: _replica(settings))
    listener = take(passed.tcp("listen"), lambda: _tcp(settings.listen, "listen"))
    api = take(passed.tcp("api"), lambda: _tcp(settings.api_listen, "api_listen"))
    if admin is None or len(problems) > before:
        return None
    return Places(admin, replica, listener, api)


def passed_otherwise(settings: Settings, places: Places) -> list[str]:
    """A line for each door that was passed and is not where its setting, if it was made, says."""
    wanted = {name: getattr(settings, setting) for name, setting, _ in _passed(places)}
    return [
        f"{setting} is {door.where}, which the service manager passed as {name!r}; "
        f"{'none' if wanted[name] is None else wanted[name]}, as the setting says, is not used"
        for name, setting, door in _passed(places)
        if door.where != str(wanted[name])
        # Of a default nobody needs to hear that it is not used.
        if setting in settings.model_fields_set
    ]


def passed_settings(places: Places) -> frozenset[str]:
    """The settings in whose place a socket was passed: its unit says what they would."""
    found = {setting for _, setting, _ in _passed(places)}
    return frozenset(found | ({"socket_mode", "socket_group"} if "socket" in found else set()))


def _passed(places: Places) -> list[tuple[str, str, UnixDoor | TcpDoor]]:
    """Of each door that was passed its name, the setting that would say where it is, and itself."""
    doors: list[tuple[str, str, UnixDoor | TcpDoor | None]] = [
        ("admin", "socket", places.admin),
        ("replica", "replica_socket", places.replica),
        ("listen", "listen", places.listener),
        ("api", "api_listen", places.api),
    ]
    return [
        (name, setting, door) for name, setting, door in doors if door is not None and door.passed
    ]


def _admin(settings: Settings) -> UnixDoor:
    return open_unix(settings.socket, settings.socket_mode, settings.socket_group)


def _replica(settings: Settings) -> UnixDoor | None:
    if settings.replica_socket is None:
        return None
    return open_unix(settings.replica_socket, REPLICA_MODE, None, "replica_socket")


def _tcp(listen: Listen | None, setting: str) -> TcpDoor | None:
    return None if listen is None else open_tcp(listen, setting)
