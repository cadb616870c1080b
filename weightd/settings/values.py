"""What an option's text may mean.

Every parser raises ValueError with a reason that ends in the accepted form.
"""

from __future__ import annotations

import grp
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from weightd.origins.contract import ORIGIN_KINDS, CredentialFile
from weightd.units import (
    BYTES_FORM,
    DURATION_FORM,
    SHARE_FORM,
    parse_bytes,
    parse_duration,
    parse_share,
)

CREDENTIALS: Final = Path("/run/credentials")
"""Where systemd has what LoadCredential= says, for each service a directory."""

SECONDS_FORM: Final = DURATION_FORM
LISTEN_FORM: Final = "ADDRESS:PORT such as 127.0.0.1:9777 or [::1]:9777, or none"
SOCKET_MODE_FORM: Final = "an octal mode such as 0660"
FILE_MODE_FORM: Final = "an octal mode without write or execute bits, such as 0444"
GROUP_FORM: Final = "a group's name or number"
YES_OR_NO_FORM: Final = "yes or no"
PATH_FORM: Final = "a path such as /var/cache/weightd"
SOCKET_FORM: Final = "a path such as /run/weightd/replica.sock, or none"

RATE_FORM: Final = f"{BYTES_FORM} a second, or none"
ORIGINS_FORM: Final = "one or more beginnings of references such as hf://org/ or s3://bucket/"
DIRECTORIES_FORM: Final = "one or more absolute directories such as /mnt/models"
TOKEN_FILE_FORM: Final = "a file of one token, such as `openssl rand -hex 32` makes"
_TOKEN_PLACE_FORM: Final = "a file that can be read, made by `openssl rand -hex 32 >FILE`"
FEATURE_FILE_FORM: Final = (
    "a file in a directory such as /etc/kubernetes/node-feature-discovery/features.d, or none"
)
TEXTFILE_FORM: Final = "a file such as /var/lib/node-exporter/textfile/weightd.prom, or none"
FILE_FORM: Final = "a file that can be read, such as /etc/ssl/ca.pem"
CREDENTIALS_FORM: Final = "names and files such as hub=/etc/weightd/hub.token"
CREDENTIAL_TABLE_FORM: Final = '{file = "/etc/weightd/hub.token", for = ["hf://org/"]}'

TOKEN_LEAST: Final = 16
"""Characters of a token; a shorter one could be guessed."""

_TOKEN_BYTES_MAX: Final = 4096

_TOKEN: Final = re.compile(rf"[A-Za-z0-9._~+/-]{{{TOKEN_LEAST},}}=*", re.ASCII)
"""What RFC 6750, section 2.1, calls b64token."""

SOCKET_PATH_MOST: Final = 107
"""Bytes of a unix socket's path; the kernel's own limit."""

_GROUP_MOST: Final = 2**32 - 2
"""The greatest number of a group; the one behind it means none at all."""

_CREDENTIAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_MODE: Final = re.compile(r"(?:0o?)?[0-7]{3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Share:
    """An amount of disk: bytes, or a percentage of the filesystem."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        parse_share(text, 0)
        return cls(text.strip())

    def of(self, filesystem: int) -> int:
        """The amount in bytes on a filesystem of that many."""
        return parse_share(self.text, filesystem)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a TCP listener binds; port 0 lets the kernel choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read ``ADDRESS:PORT``; ``none`` is None."""
        if text.strip().lower() == "none":
            return None
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not {LISTEN_FORM}")
        return cls(_address(host, text), int(port))

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(host: str, text: str) -> str:
    if host.lower() == "localhost":
        return "127.0.0.1"
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (":" in bare) != (bare != host):
        raise ValueError(f"{text!r} is not {LISTEN_FORM}")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        raise ValueError(f"{text!r} is not {LISTEN_FORM}") from None


def parse_capacity(text: str) -> Share:
    """Read a budget, which must come to something."""
    share = Share.parse(text)
    if share.of(10**18) == 0:
        raise ValueError(f"{text!r} comes to no bytes at all; give {SHARE_FORM}")
    return share


def parse_seconds(text: str) -> float:
    """Read a duration, which may be none."""
    return parse_duration(text)


def parse_patience(text: str) -> float:
    """Read a duration longer than none."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} is no time at all; give {SECONDS_FORM}")
    return seconds


def parse_yes_or_no(text: str) -> bool:
    """Read a switch."""
    switch = {"yes": True, "true": True, "no": False, "false": False}.get(text.strip().lower())
    if switch is None:
        raise ValueError(f"{text!r} is not {YES_OR_NO_FORM}")
    return switch


def parse_socket_mode(text: str) -> int:
    """Read the mode of a socket."""
    return _mode(text, SOCKET_MODE_FORM)


def parse_file_mode(text: str) -> int:
    """Read the mode of published files, which nobody may write."""
    mode = _mode(text, FILE_MODE_FORM)
    if mode & 0o333 or not mode & 0o400:
        raise ValueError(
            f"{text!r} lets published weights be written, or their owner not read them; "
            f"give {FILE_MODE_FORM}"
        )
    return mode


def _mode(text: str, form: str) -> int:
    if not _MODE.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not {form}")
    return int(text.strip().lower().removeprefix("0o"), 8)


def parse_group(text: str) -> int:
    """Turn a group's name or number into its number."""
    if text.isascii() and text.isdigit():
        if len(text) > 10 or int(text) > _GROUP_MOST:
            raise ValueError(f"{text!r} is more than the kernel's {_GROUP_MOST}; give {GROUP_FORM}")
        return int(text)
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise ValueError(f"there is no group {text!r} on this machine; give {GROUP_FORM}") from None


def parse_path(text: str) -> Path:
    """Read a path; a relative one counts from the working directory, ``~`` is the home."""
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not {PATH_FORM}")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"{text!r}: {error}; give {PATH_FORM}") from None


def parse_feature_file(text: str, form: str = FEATURE_FILE_FORM) -> Path | None:
    """Read the path of a file that is to be written; readers leave out hidden ones."""
    if text.strip().lower() == "none":
        return None
    path = parse_path(text)
    if text.endswith("/") or path.name.startswith(".") or not path.name.isprintable():
        raise ValueError(f"{text!r} is no file that would be read; give {form}")
    return path


def parse_textfile(text: str) -> Path | None:
    """The same for a reader that takes files by how they end."""
    path = parse_feature_file(text, TEXTFILE_FORM)
    if path is not None and path.suffix != ".prom":
        raise ValueError(
            f"{text!r} does not end in .prom, and node-exporter reads no other; "
            f"give {TEXTFILE_FORM}"
        )
    return path


def parse_optional_socket_path(text: str) -> Path | None:
    """Read the path of a unix socket; ``none`` is None."""
    return None if text.strip().lower() == "none" else parse_socket_path(text)


def parse_socket_path(text: str) -> Path:
    """Read the path of a unix socket, which the kernel bounds."""
    path = parse_path(text)
    length = len(bytes(path))
    if length > SOCKET_PATH_MOST:
        raise ValueError(
            f"{str(path)!r} has {length} bytes, and the kernel takes {SOCKET_PATH_MOST} for a "
            "socket; give a shorter path"
        )
    return path


def parse_rate(text: str) -> int | None:
    """Read bytes a second; ``none`` is None."""
    if text.strip().lower() == "none":
        return None
    rate = parse_bytes(text)
    if rate == 0:
        raise ValueError(f"{text!r} lets nothing arrive; give {RATE_FORM}")
    return rate


def parse_file(text: str, form: str = FILE_FORM) -> Path:
    """Read the path of a file, which must be there."""
    path = parse_path(text)
    # `isfile`, unlike the method of a path, raises nothing where this user may not look.
    if not out_of_sight(path) and not (os.path.isfile(path) and os.access(path, os.R_OK)):
        raise ValueError(f"{str(path)!r} is not {form}")
    return path


def out_of_sight(path: Path) -> bool:
    """Whether it is a credential that systemd keeps for a service, and not for this process.

    So it is to an ExecReload= of the service's own (systemd 252), and to other users: whether it
    is in order only the service itself can tell, at its start.
    """
    if CREDENTIALS not in path.parents:
        return False
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def parse_token_file(text: str) -> Path:
    """Read the path of a file with a token, which must be fit to be shown in a header."""
    path = parse_file(text, _TOKEN_PLACE_FORM)
    if not out_of_sight(path):
        read_token(path)
    return path


def read_token(path: Path) -> str:
    """The token in a file.  Raises ValueError, which never says what is in it."""
    try:
        with path.open("rb") as file:
            text = file.read(_TOKEN_BYTES_MAX + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not _TOKEN.fullmatch(text) or len(text) > _TOKEN_BYTES_MAX:
        raise ValueError(
            f"{str(path)!r} holds no token of {TOKEN_LEAST} to {_TOKEN_BYTES_MAX} letters, digits "
            f"and -._~+/=; give {TOKEN_FILE_FORM}"
        )
    return text


def parse_origins(items: Sequence[str]) -> tuple[str, ...]:
    """Read the beginnings of references; an empty list would not say whether it means all."""
    if not items:
        raise ValueError(
            f"an empty list allows nothing; leave it out to allow any, or give {ORIGINS_FORM}"
        )
    for item in items:
        _must_begin_a_reference(item)
    return tuple(items)


def _must_begin_a_reference(item: str) -> None:
    kind, separator, _ = item.partition("://")
    if not separator or kind not in ORIGIN_KINDS:
        raise ValueError(
            f"{item!r} begins with none of {', '.join(f'{one}://' for one in ORIGIN_KINDS)}; "
            f"give {ORIGINS_FORM}"
        )


def parse_directories(items: Sequence[str]) -> tuple[Path, ...]:
    """Read directories, which need not be there yet."""
    for item in items:
        if not item.startswith("/") or "\0" in item:
            raise ValueError(f"{item!r} is not an absolute path; give {DIRECTORIES_FORM}")
    return tuple(Path(item) for item in items)


def parse_credentials(items: Mapping[str, object]) -> tuple[CredentialFile, ...]:
    """Read names, and the files that hold what each stands for; they are read when used.

    An item is a file's path, or a table of ``file`` and ``for``.
    """
    return tuple(_credential(name, item) for name, item in items.items())


def _credential(name: str, item: object) -> CredentialFile:
    table = item if isinstance(item, Mapping) else {"file": item}
    if not {"file"} <= set(table) <= {"file", "for"}:
        raise ValueError(f"{name} is {item!r}; its table is {CREDENTIAL_TABLE_FORM}")
    file = table["file"]
    absolute = str(file).startswith("/") and str(file).isprintable()
    if not isinstance(file, str) or not absolute or not _CREDENTIAL.fullmatch(name):
        raise ValueError(
            f"{f'{name}={file}'!r} is not a name and an absolute path; give {CREDENTIALS_FORM}"
        )
    return CredentialFile(name, file, _shown_to(name, table["for"]) if "for" in table else ())


def _shown_to(name: str, given: object) -> tuple[str, ...]:
    """What references begin with that see a credential; one or more."""
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise ValueError(
            f"{name}: for is {given!r}; leave it out to show it to any source, or give "
            f"{ORIGINS_FORM}"
        )
    for item in items:
        if not isinstance(item, str):
            raise ValueError(f"{name}: for has {item!r}; give {ORIGINS_FORM}")
        _must_begin_a_reference(item)
        kind, _, rest = item.partition("://")
        host = rest.partition("/")[0]
        if kind in ("http", "https") and (not host or "*" in host):
            raise ValueError(
                f"{name}: {item!r} names no whole host, and would show it to others; give one "
                "such as https://weights.example/"
            )
    return tuple(items)
