"""Whether settings that are written well can be lived by on this machine.

Only what can be known by looking: nothing is made, bound or locked, and whoever looks may be
another than the daemon that runs already.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Final, TypeAlias

from weightd.settings.options import Settings
from weightd.settings.places import CONFIG, nearest_existing
from weightd.settings.values import (
    DIRECTORIES_FORM,
    FILE_FORM,
    SOCKET_PATH_MOST,
    Listen,
    out_of_sight,
)

Look: TypeAlias = Callable[[Settings], Iterable[str]]


def unfit(
    settings: Settings, unsure: Set[str], places: Mapping[str, str], *, taken: bool
) -> list[str]:
    """One line for everything that is in the way, as a problem of a setting is told.

    What is ``unsure``, since it was written wrong, is not looked at, and neither are root and
    sockets when they are ``taken`` next.
    """
    return [
        f"{names[0]} ({places.get(names[0], 'default')}): {reason}"
        for names, look in (_LOOKS if taken else _PLACES + _LOOKS)
        if unsure.isdisjoint(names)
        for reason in look(settings)
    ]


# -- Places ------------------------------------------------------------------------


def _root(settings: Settings) -> Iterable[str]:
    root = settings.root
    try:
        if root.is_symlink():
            yield f"{root} is a symlink; set the root to {os.path.realpath(root)}"
        elif root.exists() and not root.is_dir():
            yield f"{root} is not a directory; set the root to one, or move it away"
        elif not _may(place := nearest_existing(root), os.W_OK | os.X_OK):
            yield (
                f"{root} cannot be used by this user (uid {os.geteuid()}), who may not write to "
                f"{place}; give him that, or set another root"
            )
    except OSError:
        # The budget is told of a root that cannot be looked at.
        return


def _socket(settings: Settings) -> Iterable[str]:
    return _door(settings.socket)


def _replica_socket(settings: Settings) -> Iterable[str]:
    path = settings.replica_socket
    # Of the same path what is in the way is told of the other.
    return () if path is None or path == settings.socket else _door(path)


def _two_sockets(settings: Settings) -> Iterable[str]:
    if settings.replica_socket == settings.socket:
        yield f"{settings.socket} is the path of socket as well; give each its own"


def _door(path: Path) -> Iterable[str]:
    if len(bytes(path)) > SOCKET_PATH_MOST:
        yield (
            f"{path} has {len(bytes(path))} bytes, and the kernel takes {SOCKET_PATH_MOST} for a "
            "socket; give a shorter path"
        )
        return
    try:
        mode = path.lstat().st_mode
    except NotADirectoryError:
        yield f"{path.parent} is not a directory; give a path below one"
    except OSError:
        return
    else:
        if not stat.S_ISSOCK(mode):
            yield f"{path} is there and is not a socket; move it, or give another path"


def _api_listen(settings: Settings) -> Iterable[str]:
    one, other = settings.listen, settings.api_listen
    if one is not None and other is not None and _clash(one, other):
        yield f"{other} is taken by listen ({one}); give each its own port"


def _clash(one: Listen, other: Listen) -> bool:
    everywhere = ("0.0.0.0", "::")
    same_family = (":" in one.host) == (":" in other.host)
    same_host = one.host == other.host or one.host in everywhere or other.host in everywhere
    return one.port == other.port != 0 and same_family and same_host


# -- Files that are named ------------------------------------------------------------


def _ca_file(settings: Settings) -> Iterable[str]:
    if settings.ca_file is None or out_of_sight(settings.ca_file):
        return
    # It takes a while to import, and most settings name none.
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=settings.ca_file)
    except OSError:
        yield f"{settings.ca_file} holds no certificates (PEM); give {FILE_FORM}"


def _credentials(settings: Settings) -> Iterable[str]:
    for one in settings.credentials:
        path = Path(one.path)
        if out_of_sight(path):
            continue
        if not _is(path.is_file):
            yield f"{one.name}: there is no file {path}; write it, or leave {one.name} out"
        elif not _may(path, os.R_OK):
            yield (
                f"{one.name}: {path} cannot be read by this user (uid {os.geteuid()}); let him "
                f"read it, or leave {one.name} out"
            )


def _import_roots(settings: Settings) -> Iterable[str]:
    for path in settings.import_roots:
        if not _is(path.is_dir) or not _may(path, os.R_OK | os.X_OK):
            yield (
                f"{path} is no directory that this user (uid {os.geteuid()}) can read; give "
                f"{DIRECTORIES_FORM}"
            )


def _node_labels(settings: Settings) -> Iterable[str]:
    return _written(settings, settings.node_labels)


def _textfile(settings: Settings) -> Iterable[str]:
    return _written(settings, settings.textfile)


def _written(settings: Settings, path: Path | None) -> Iterable[str]:
    """A file that is replaced as models come and go would take what is there with it."""
    if path is None:
        return
    place = _real(path)
    if place.is_relative_to(os.path.realpath(settings.root)):
        yield f"{path} is in the root ({settings.root}), where only models are; give another place"
    for name, other in _read_elsewhere(settings):
        if other is not None and _real(other) == place:
            yield f"{path} is the path of {name} as well, and would be replaced; give another"


def _read_elsewhere(settings: Settings) -> Iterable[tuple[str, Path | None]]:
    yield "config", settings.config or CONFIG
    yield "socket", settings.socket
    yield "replica_socket", settings.replica_socket
    yield "token_file", settings.token_file
    yield "ca_file", settings.ca_file
    for one in settings.credentials:
        yield f"the credential {one.name}", Path(one.path)


def _real(path: Path) -> Path:
    """Where a name is, whatever its directory is called; it may itself be a link."""
    return Path(os.path.realpath(path.parent), path.name)


def _is(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except OSError:
        return False


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=True)


_Looks: TypeAlias = tuple[tuple[tuple[str, ...], Look], ...]
"""Each with the settings it is about, of which the first is told."""

_ELSEWHERE: Final = (
    "config",
    "root",
    "socket",
    "replica_socket",
    "token_file",
    "ca_file",
    "credentials",
)
"""What has a place that no other file may be at."""

_PLACES: Final[_Looks] = (
    (("root",), _root),
    (("socket",), _socket),
    (("replica_socket",), _replica_socket),
)
"""A start tells of these when it takes them, with whatever else is in its way there."""

_LOOKS: Final[_Looks] = (
    (("replica_socket", "socket"), _two_sockets),
    (("api_listen", "listen"), _api_listen),
    (("ca_file",), _ca_file),
    (("credentials",), _credentials),
    (("import_roots",), _import_roots),
    (("node_labels", *_ELSEWHERE), _node_labels),
    (("textfile", *_ELSEWHERE), _textfile),
)
