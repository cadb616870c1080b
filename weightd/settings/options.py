"""Every option of the daemon, once: name, form, default, reason.

Flags (``--socket-mode``), environment variables (``WEIGHTD_SOCKET_MODE``), keys
of the TOML file (``socket_mode``) and the tables in ``--help`` and the README
all come from the fields of `Settings`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from weightd.origins.contract import CredentialFile
from weightd.settings import values
from weightd.settings.places import default_root, default_socket
from weightd.settings.preloads import PRELOAD_FORM, Preload, check_credentials, parse_preloads
from weightd.settings.readers import (
    read_credentials,
    read_list,
    read_lower,
    read_mode,
    read_number,
    read_switch,
    read_text,
)
from weightd.settings.values import Listen, Share
from weightd.settings.variables import PREFIX

WITH_NONE: Final = frozenset({"listen", "api_listen", "fetch_bandwidth", "node_labels", "textfile"})
"""Options of which none is a value that may be written."""


@dataclass(frozen=True, slots=True)
class Form:
    """How an option is written: the form accepted, a word for it, and the default in words.

    ``file_only`` has no flag and no variable.
    """

    form: str
    word: str
    default: str
    file_only: bool = False


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
        read_text(values.parse_path),
        Form(values.PATH_FORM, "FILE", "/etc/weightd/weightd.toml, if it is there"),
    ] = Field(None, description="TOML file of these settings; one that is named must exist.")
    root: Annotated[
        Path,
        read_text(values.parse_path),
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
        read_switch,
        Form(values.YES_OR_NO_FORM, "{yes,no}", "no"),
    ] = Field(
        False,
        description="Refuse to start on the filesystem of / or of kubelet: the root's own disk "
        "is not mounted then.",
    )
    capacity: Annotated[
        Share, read_text(values.parse_capacity), Form(values.SHARE_FORM, "SIZE", "80%")
    ] = Field(
        Share("80%"),
        description="The budget: the most that models may occupy, in bytes or percent of the "
        "filesystem (used plus available, as df counts).",
    )
    min_free: Annotated[
        Share | None,
        read_text(Share.parse),
        Form(values.SHARE_FORM, "SIZE", "5%, or 20% on the filesystem of / or of kubelet"),
    ] = Field(
        None,
        description="What must stay free on the filesystem, whatever the budget says, in bytes "
        "or percent; more where a full disk would stop the node.",
    )
    socket: Annotated[
        Path,
        read_text(values.parse_socket_path),
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
        read_mode(values.parse_socket_mode),
        Form(values.SOCKET_MODE_FORM, "MODE", "0660"),
    ] = Field(0o660, description="Permissions of the socket: by default its owner and its group.")
    socket_group: Annotated[
        int | None,
        read_text(values.parse_group),
        Form(values.GROUP_FORM, "GROUP", "the daemon's own"),
    ] = Field(None, description="Group of the socket, for replicas that run as other users.")
    replica_socket: Annotated[
        Path | None,
        read_text(values.parse_optional_socket_path),
        Form(values.SOCKET_FORM, "PATH", "none"),
    ] = Field(
        None,
        description="Unix socket for replicas of any user (mode 0666): they look up, read, list, "
        "and pin as the user the kernel says they are; none turns it off.",
    )
    listen: Annotated[
        Listen | None,
        read_text(Listen.parse),
        Form(values.LISTEN_FORM, "ADDRESS:PORT", "127.0.0.1:9777"),
    ] = Field(
        Listen("127.0.0.1", 9777),
        description="Read-only TCP listener for Prometheus and people; none turns it off. On an "
        "address that is not loopback it answers /metrics, /healthz and /readyz only.",
    )
    token_file: Annotated[
        Path | None,
        read_text(values.parse_token_file),
        Form(values.TOKEN_FILE_FORM, "FILE", "none"),
    ] = Field(
        None,
        description="File of the token that opens the doors on the network: all of api_listen, "
        "and status and models of a listen that is not loopback.",
    )
    api_listen: Annotated[
        Listen | None,
        read_text(Listen.parse),
        Form(values.LISTEN_FORM, "ADDRESS:PORT", "none"),
    ] = Field(
        None,
        description="TCP listener of the whole API, for who shows the token of token_file. It does "
        "not encrypt; put what does in front of it.",
    )
    file_mode: Annotated[
        int, read_mode(values.parse_file_mode), Form(values.FILE_MODE_FORM, "MODE", "0444")
    ] = Field(
        0o444,
        description="Permissions of published files: read-only, since replicas map them.",
    )
    group: Annotated[
        int | None,
        read_text(values.parse_group),
        Form(values.GROUP_FORM, "GROUP", "the daemon's own"),
    ] = Field(None, description="Group of published files, for a file_mode such as 0440.")
    idle_timeout: Annotated[
        float,
        read_text(values.parse_patience),
        Form(values.SECONDS_FORM, "SECONDS", "60s"),
    ] = Field(
        60.0,
        description="How long a peer may send or take nothing before it is given up and its "
        "reservation is free again, in seconds; an origin 30 at most.",
    )
    drain_timeout: Annotated[
        float,
        read_text(values.parse_seconds),
        Form(values.SECONDS_FORM, "SECONDS", "25s"),
    ] = Field(
        25.0,
        description="How long arrivals under way may go on after SIGTERM, in seconds; by default "
        "a little less than Kubernetes waits before it kills.",
    )
    orphan_grace: Annotated[
        float,
        read_text(values.parse_seconds),
        Form(values.SECONDS_FORM, "SECONDS", "600s"),
    ] = Field(
        600.0,
        description="How long a pin from before a reboot of the node stays, in seconds, so that "
        "its holder can renew it; pins with ttl=forever stay anyway.",
    )
    puts_limit: Annotated[int, read_number, Form("a number from 1 to 1024", "N", "32")] = Field(
        32,
        ge=1,
        le=1024,
        description="How many puts may be under way at once; one more is answered too-many. "
        "Each takes two threads and 2 MiB of buffers.",
    )
    fetch_concurrency: Annotated[int, read_number, Form("a number from 1 to 16", "N", "4")] = Field(
        4,
        ge=1,
        le=16,
        description="How many fetches run at once; the others wait for their turn, those that "
        "somebody waits for first.",
    )
    fetch_bandwidth: Annotated[
        int | None, read_text(values.parse_rate), Form(values.RATE_FORM, "SIZE", "none")
    ] = Field(
        None,
        description="What all fetches together may take, in bytes a second; none is no bound.",
    )
    partial_ttl: Annotated[
        float, read_text(values.parse_seconds), Form(values.SECONDS_FORM, "SECONDS", "1d")
    ] = Field(
        86400.0,
        description="How long the bytes of a fetch that did not end are kept to go on from, in "
        "seconds; they go before any model when room is needed.",
    )
    allow_origins: Annotated[
        tuple[str, ...] | None,
        read_list(values.parse_origins),
        Form(
            values.ORIGINS_FORM,
            "PREFIX,…",
            "any but file:// at the admin socket, none at the replicas'",
        ),
    ] = Field(
        None,
        description="What a source must begin with; the replica socket fetches from nowhere else.",
    )
    import_roots: Annotated[
        tuple[Path, ...],
        read_list(values.parse_directories),
        Form(values.DIRECTORIES_FORM, "DIR,…", "none"),
    ] = Field((), description="Directories below which file:// may read.")
    ca_file: Annotated[
        Path | None, read_text(values.parse_file), Form(values.FILE_FORM, "FILE", "the system's")
    ] = Field(
        None,
        description="Certificates (PEM) that origins are trusted by, in place of the system's.",
    )
    credentials: Annotated[
        tuple[CredentialFile, ...],
        read_credentials,
        Form(values.CREDENTIALS_FORM, "NAME=FILE,…", "none"),
    ] = Field(
        (),
        description="Names by which a fetch may ask for a credential, and the file of each, read "
        "when it is used; in the file a table. There an entry may be {file, for}: it is shown only "
        "to sources that begin with what `for` lists, and the replica socket may name no other.",
    )
    preload: Annotated[
        tuple[Preload, ...],
        BeforeValidator(parse_preloads),
        Form(PRELOAD_FORM, "[[preload]]", "none", file_only=True),
    ] = Field(
        (),
        description="Models to fetch when nothing else is to be done, in this order: tables of "
        "key, source (one or a list) and, if need be, keep (forever, or for how long after its "
        "last use), credential (a name of `credentials`) and digest (the content it has to be).",
    )
    node_labels: Annotated[
        Path | None,
        read_text(values.parse_feature_file),
        Form(values.FEATURE_FILE_FORM, "FILE", "none"),
    ] = Field(
        None,
        description="File that is kept to the models that are here, for Node Feature Discovery to "
        "make labels of (weightd.io/model.NAME=true); `weightd label KEY` prints one.",
    )
    textfile: Annotated[
        Path | None,
        read_text(values.parse_textfile),
        Form(values.TEXTFILE_FORM, "FILE", "none"),
    ] = Field(
        None,
        description="The same for node-exporter's textfile collector: weightd_model_bytes with a "
        "series for each model, as /metrics has none.",
    )
    policy: Annotated[Literal["lru"], read_lower, Form("lru", "{lru}", "lru")] = Field(
        "lru", description="Which models go first when room is needed: the longest unused."
    )
    log_format: Annotated[
        Literal["text", "json"],
        read_lower,
        Form("text or json", "{text,json}", "text"),
    ] = Field("text", description="How log lines are written: for people, or for a collector.")
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        read_lower,
        Form("debug, info, warning or error", "{debug,info,warning,error}", "info"),
    ] = Field("info", description="The least that is logged.")

    @field_validator("api_listen")
    @classmethod
    def _with_a_token(cls, listen: Listen | None, others: ValidationInfo) -> Listen | None:
        # A file that is wrong itself is told of instead.
        if listen is not None and others.data.get("token_file", ...) is None:
            raise ValueError(
                "the whole API is not opened to the network without a token; give token_file as "
                f"well: {values.TOKEN_FILE_FORM}"
            )
        return listen

    @field_validator("textfile")
    @classmethod
    def _apart_from_the_labels(cls, path: Path | None, others: ValidationInfo) -> Path | None:
        if path is not None and path == others.data.get("node_labels"):
            raise ValueError(f"{str(path)!r} is node_labels' file; give {values.TEXTFILE_FORM}")
        return path

    @field_validator("preload")
    @classmethod
    def _with_credentials_that_there_are(
        cls, preload: tuple[Preload, ...], others: ValidationInfo
    ) -> tuple[Preload, ...]:
        # Credentials that are wrong themselves are told of instead.
        if "credentials" in others.data:
            check_credentials(preload, others.data["credentials"])
        return preload


@dataclass(frozen=True, slots=True)
class Option:
    """One option as flags, help and tables show it.

    One that only the file has keeps its ``flag`` and ``variable``, in which it is refused.
    """

    name: str
    flag: str
    variable: str
    form: str
    word: str
    default: str
    description: str
    file_only: bool


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
        file_only=form.file_only,
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
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None and name in WITH_NONE else str(value)
