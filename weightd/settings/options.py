"""Every option of the daemon, once: name, form, default, reason.

Flags (``--socket-mode``), environment variables (``WEIGHTD_SOCKET_MODE``), keys
of the TOML file (``socket_mode``) and the tables in ``--help`` and the README
all come from the fields of `Settings`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from weightd.settings import values
from weightd.settings.places import default_root, default_socket
from weightd.settings.values import Listen, Share

PREFIX: Final = "WEIGHTD_"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """How an option is written: the form accepted, a word for it, and the default in words."""

    form: str
    word: str
    default: str


# A reader that raises without words leaves them to the option's own form.


def _read(parse: Callable[[str], T]) -> BeforeValidator:
    """Parse text; a number from the file is read as the text it was written as."""

    def read(given: object) -> object:
        if isinstance(given, str):
            return parse(given)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return parse(str(given))
        raise ValueError

    return BeforeValidator(read)


def _read_mode(parse: Callable[[str], int]) -> BeforeValidator:
    """Parse the text of a mode; a bare number would not say whether it is octal."""

    def read(given: object) -> object:
        if isinstance(given, str):
            return parse(given)
        raise ValueError(f'{given!r} is not text; write the mode in quotes, such as "0660"')

    return BeforeValidator(read)


def _switch(given: object) -> object:
    """A switch of the file is a TOML boolean, or text as a variable has it."""
    if isinstance(given, str):
        return values.parse_yes_or_no(given)
    if isinstance(given, bool):
        return given
    raise ValueError


_read_switch = BeforeValidator(_switch)


def _number(given: object) -> object:
    if isinstance(given, bool):
        raise ValueError
    return given


def _lower(given: object) -> object:
    return given.lower() if isinstance(given, str) else given


def _root() -> Path:
    return default_root(os.environ, os.geteuid())


def _socket() -> Path:
    return default_socket(os.environ, os.geteuid())


class Settings(BaseSettings):
    """What `weightd serve` runs by.  Each field's description is its help text."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        enable_decoding=False,
        extra="forbid",
        frozen=True,
        validate_default=False,
    )

    config: Annotated[
        Path | None,
        _read(values.parse_path),
        Form(values.PATH_FORM, "FILE", "/etc/weightd/weightd.toml, if it is there"),
    ] = Field(None, description="TOML file of these settings; one that is named must exist.")
    root: Annotated[
        Path,
        _read(values.parse_path),
        Form(
            values.PATH_FORM,
            "DIR",
            "$CACHE_DIRECTORY, else /var/cache/weightd for root, "
            "else $XDG_CACHE_HOME/weightd (~/.cache/weightd)",
        ),
    ] = Field(
        default_factory=_root,
        description="Directory that holds the models; one daemon owns it, best on its own disk.",
    )
    require_mount: Annotated[
        bool,
        _read_switch,
        Form(values.YES_OR_NO_FORM, "{yes,no}", "no"),
    ] = Field(
        False,
        description="Refuse to start on the filesystem of / or of kubelet: the root's own disk "
        "is not mounted then.",
    )
    capacity: Annotated[
        Share, _read(values.parse_capacity), Form(values.SHARE_FORM, "SIZE", "80%")
    ] = Field(
        Share("80%"),
        description="The budget: the most that models may occupy, in bytes or percent of the "
        "filesystem (used plus available, as df counts).",
    )
    min_free: Annotated[
        Share | None,
        _read(Share.parse),
        Form(values.SHARE_FORM, "SIZE", "5%, or 20% on the filesystem of / or of kubelet"),
    ] = Field(
        None,
        description="What must stay free on the filesystem, whatever the budget says, in bytes "
        "or percent; more where a full disk would stop the node.",
    )
    socket: Annotated[
        Path,
        _read(values.parse_socket_path),
        Form(
            values.PATH_FORM,
            "PATH",
            "$RUNTIME_DIRECTORY/weightd.sock, else /run/weightd/weightd.sock for root, "
            "else $XDG_RUNTIME_DIR/weightd/weightd.sock, or where that is unset "
            "/tmp/weightd-UID/weightd.sock",
        ),
    ] = Field(
        default_factory=_socket,
        description="Unix socket of the whole API; whoever may write to it may do everything.",
    )
    socket_mode: Annotated[
        int,
        _read_mode(values.parse_socket_mode),
        Form(values.SOCKET_MODE_FORM, "MODE", "0660"),
    ] = Field(0o660, description="Permissions of the socket: by default its owner and its group.")
    socket_group: Annotated[
        int | None,
        _read(values.parse_group),
        Form(values.GROUP_FORM, "GROUP", "the daemon's own"),
    ] = Field(None, description="Group of the socket, for replicas that run as other users.")
    replica_socket: Annotated[
        Path | None,
        _read(values.parse_optional_socket_path),
        Form(values.SOCKET_FORM, "PATH", "none"),
    ] = Field(
        None,
        description="Unix socket for replicas of any user (mode 0666): they look up, read, list, "
        "and pin as the user the kernel says they are; none turns it off.",
    )
    listen: Annotated[
        Listen | None,
        _read(Listen.parse),
        Form(values.LISTEN_FORM, "ADDRESS:PORT", "127.0.0.1:9777"),
    ] = Field(
        Listen("127.0.0.1", 9777),
        description="Read-only TCP listener for Prometheus and people; none turns it off. On an "
        "address that is not loopback it answers /metrics, /healthz and /readyz only.",
    )
    file_mode: Annotated[
        int, _read_mode(values.parse_file_mode), Form(values.FILE_MODE_FORM, "MODE", "0444")
    ] = Field(
        0o444,
        description="Permissions of published files: read-only, since replicas map them.",
    )
    group: Annotated[
        int | None,
        _read(values.parse_group),
        Form(values.GROUP_FORM, "GROUP", "the daemon's own"),
    ] = Field(None, description="Group of published files, for a file_mode such as 0440.")
    idle_timeout: Annotated[
        float,
        _read(values.parse_patience),
        Form(values.SECONDS_FORM, "SECONDS", "60s"),
    ] = Field(
        60.0,
        description="How long a peer may send or take nothing before it is given up and its "
        "reservation is free again, in seconds.",
    )
    drain_timeout: Annotated[
        float,
        _read(values.parse_seconds),
        Form(values.SECONDS_FORM, "SECONDS", "25s"),
    ] = Field(
        25.0,
        description="How long arrivals under way may go on after SIGTERM, in seconds; by default "
        "a little less than Kubernetes waits before it kills.",
    )
    orphan_grace: Annotated[
        float,
        _read(values.parse_seconds),
        Form(values.SECONDS_FORM, "SECONDS", "600s"),
    ] = Field(
        600.0,
        description="How long a pin from before a reboot of the node stays, in seconds, so that "
        "its holder can renew it; pins with ttl=forever stay anyway.",
    )
    puts_limit: Annotated[
        int, BeforeValidator(_number), Form("a number from 1 to 1024", "N", "32")
    ] = Field(
        32,
        ge=1,
        le=1024,
        description="How many puts may be under way at once; one more is answered too-many. "
        "Each takes a thread and a buffer.",
    )
    policy: Annotated[Literal["lru"], BeforeValidator(_lower), Form("lru", "{lru}", "lru")] = Field(
        "lru", description="Which models go first when room is needed: the longest unused."
    )
    log_format: Annotated[
        Literal["text", "json"],
        BeforeValidator(_lower),
        Form("text or json", "{text,json}", "text"),
    ] = Field("text", description="How log lines are written: for people, or for a collector.")
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(_lower),
        Form("debug, info, warning or error", "{debug,info,warning,error}", "info"),
    ] = Field("info", description="The least that is logged.")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as flags, help and tables show it."""

    name: str
    flag: str
    variable: str
    form: str
    word: str
    default: str
    description: str


def _option(name: str) -> Option:
    field = Settings.model_fields[name]
    form = next(extra for extra in field.metadata if isinstance(extra, Form))
    return Option(
        name=name,
        flag="--" + name.replace("_", "-"),
        variable=PREFIX + name.upper(),
        form=form.form,
        word=form.word,
        default=form.default,
        description=str(field.description),
    )


def options() -> tuple[Option, ...]:
    """Every option, in the order of the documentation."""
    return tuple(_option(name) for name in Settings.model_fields)


def written(name: str, value: Any) -> str:
    """An option's value as a user would write it."""
    if name in ("socket_mode", "file_mode"):
        return f"{value:04o}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}s"
    return "none" if value is None and name == "listen" else str(value)
