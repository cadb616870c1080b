"""Binding the doors: a unix socket with its mode and group, and a TCP listener.

A socket that the service manager passes (`weightd.daemon.activation`) is bound already: its
path, mode and group are the manager's, and its name is never removed here.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weightd.daemon.refusal import StartRefused
from weightd.settings import Listen

BACKLOG: Final = 2048
"""Connections the kernel keeps waiting; it takes less when net.core.somaxconn is lower."""

_ANSWER_WITHIN: Final = 2.0
"""Seconds for whoever listens on a socket found in place to take a connection."""


@dataclass(frozen=True, slots=True)
class UnixDoor:
    """A bound unix socket, and which inode is its name, so that only that is removed.

    Of a socket that was passed, ``identity`` is None.
    """

    path: Path
    socket: socket.socket
    identity: tuple[int, int] | None

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def passed(self) -> bool:
        """Whether others listen on it, too: who connects while nobody takes it is not refused."""
        return self.identity is None

    def close(self) -> None:
        """Close it, and remove its name unless that is another's or was passed."""
        self.socket.close()
        if self.identity is not None and _identity(self.path) == self.identity:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class TcpDoor:
    """A bound TCP listener, at ``address``; see `UnixDoor.passed`."""

    address: Listen
    socket: socket.socket
    passed: bool = False

    @property
    def where(self) -> str:
        return str(self.address)

    def close(self) -> None:
        self.socket.close()


def open_unix(path: Path, mode: int, group: int | None, setting: str = "socket") -> UnixDoor:
    """Bind ``path``, which ``setting`` names, replacing a stale socket on which nobody answers.

    Nobody can connect before mode and group are set, since listening comes last.
    Raises StartRefused.
    """
    advice = f"set another with --{setting.replace('_', '-')}"
    try:
        return _bound(path, mode, group)
    except _InTheWay as error:
        raise StartRefused(f"{setting}: {error}{advice}") from None
    except OSError as error:
        raise StartRefused(
            f"{setting}: {path} cannot be bound: {error.strerror}; {advice}"
        ) from error


class _InTheWay(Exception):
    """Why a socket cannot be made there, up to the advice to make it elsewhere."""


def _bound(path: Path, mode: int, group: int | None) -> UnixDoor:
    _make_parent(path)
    _clear(path)
    with ExitStack() as undo:
        door = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        door.setblocking(False)
        door.bind(os.fspath(path))
        undo.callback(path.unlink, missing_ok=True)
        if group is not None:
            _give_to(path, group)
        path.chmod(mode)
        door.listen(BACKLOG)
        identity = _identity(path)
        if identity is None:
            raise _InTheWay(f"{path} was taken away while it was being bound; ")
        undo.pop_all()
    return UnixDoor(path, door, identity)


def address_of(listener: socket.socket) -> Listen:
    """Where a TCP listener is bound."""
    host, port = listener.getsockname()[:2]
    return Listen(host, port)


def open_tcp(listen: Listen, setting: str = "listen") -> TcpDoor:
    """Bind a listener, which ``setting`` names.  Raises StartRefused."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((listen.host, listen.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        flag = f"--{setting.replace('_', '-')}"
        raise StartRefused(
            f"{setting}: {listen} cannot be bound: {error.strerror}; "
            f"set another with {flag}, or {flag} none"
        ) from error
    return TcpDoor(address_of(listener), listener)


def _make_parent(path: Path) -> None:
    """Make the socket's directory; refuse one that a stranger laid out in a shared place."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whom the socket's own mode lets in has to reach it, whatever the umask says.
        path.parent.chmod(0o755)
    owner = path.parent.stat().st_uid
    shared = path.parent.parent.stat().st_mode & stat.S_ISVTX
    if shared and owner not in (0, os.geteuid()):
        raise _InTheWay(
            f"{path.parent} belongs to uid {owner}, who could put another socket in its place; "
        )


def _clear(path: Path) -> None:
    """Remove a socket that nobody answers on; anything else in the way is left alone."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _InTheWay(f"{path} is there and is not a socket; move it, or ")
    if _answers(path):
        raise _InTheWay(f"another process answers on {path}; stop it, or ")
    path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    """Whether somebody listens there.  A full backlog, or no permission to ask, means yes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_WITHIN)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (BlockingIOError, TimeoutError, PermissionError):
            return True
    return True


def _give_to(path: Path, group: int) -> None:
    try:
        os.chown(path, -1, group)
    except PermissionError:
        raise StartRefused(
            f"socket_group: this user may not give {path} to group {group}; run as root or "
            "as a member of the group"
        ) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
