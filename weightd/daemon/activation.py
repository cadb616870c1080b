"""Sockets that a service manager bound and passes on, so that none of its callers is refused.

systemd listens before the daemon does and while it restarts: who connects meanwhile waits
in the kernel for the next instance.  Its variables name the sockets (sd_listen_fds(3)):
``LISTEN_PID`` is for whom they are, ``LISTEN_FDS`` how many there are from descriptor 3 on,
and ``LISTEN_FDNAMES`` what each is called, which is ``FileDescriptorName=`` of its unit.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from weightd.daemon.listeners import TcpDoor, UnixDoor, address_of
from weightd.daemon.refusal import StartRefused

FIRST: Final = 3
"""The first descriptor that is passed; those before it are the standard streams."""

_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")

Name: TypeAlias = Literal["admin", "replica", "listen", "api"]
"""What a passed socket may be called: ``admin`` is the one of the setting ``socket``."""

NAMES: Final[tuple[Name, ...]] = get_args(Name)
_DIGITS_MAX: Final = 4
_ACCEPTED: Final = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"


@dataclass(frozen=True, slots=True)
class Passed:
    """The sockets by their names; each is listened on already."""

    sockets: Mapping[str, socket.socket]

    def unix(self, name: Name) -> UnixDoor | None:
        """The unix socket of that name, if it was passed."""
        found = self.sockets.get(name)
        return None if found is None else UnixDoor(Path(found.getsockname()), found, identity=None)

    def tcp(self, name: Name) -> TcpDoor | None:
        """The TCP listener of that name, if it was passed."""
        found = self.sockets.get(name)
        return None if found is None else TcpDoor(address_of(found), found, passed=True)

    def close(self) -> None:
        """Let go of all of them; whoever passed them keeps listening."""
        for one in self.sockets.values():
            one.close()


def take_passed(environ: MutableMapping[str, str], pid: int) -> Passed:
    """Take over what was passed to process ``pid``, and take the variables out of ``environ``.

    What this process starts later inherits neither the sockets nor the variables.
    Raises StartRefused with everything that is wrong.
    """
    said = {name: environ.pop(name, "") for name in _VARIABLES}
    if not said["LISTEN_FDS"] or said["LISTEN_PID"] != str(pid):
        return Passed({})
    count = said["LISTEN_FDS"]
    if not (count.isascii() and count.isdigit() and len(count) <= _DIGITS_MAX):
        raise StartRefused(f"LISTEN_FDS: {count!r} is no number of sockets; systemd sets it")
    names = said["LISTEN_FDNAMES"].split(":") if said["LISTEN_FDNAMES"] else []
    # Some pass nameless ones; each is told of by its number then.
    names += [""] * (int(count) - len(names))
    found: dict[str, socket.socket] = {}
    problems = []
    for descriptor, name in zip(range(FIRST, FIRST + int(count)), names, strict=False):
        problem = _wrong(descriptor, name, found)
        if problem is not None:
            problems.append(f"descriptor {descriptor} ({name or 'without a name'}): {problem}")
        else:
            os.set_inheritable(descriptor, False)
            found[name] = socket.socket(fileno=descriptor)
            found[name].setblocking(False)
    if problems:
        Passed(found).close()
        raise StartRefused(*problems)
    return Passed(found)


def _wrong(descriptor: int, name: str, others: dict[str, socket.socket]) -> str | None:
    """Why a descriptor cannot be the door of that name, None when it can."""
    if name not in NAMES:
        return f"is no door's name; FileDescriptorName= is {_ACCEPTED}"
    if name in others:
        return "another socket has that name; pass one for each door"
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return "it is not a socket; pass one that ListenStream= made"
    except OSError as error:
        return f"it is not open ({error.strerror}); start weightd by its socket's unit"
    # A copy, since the caller's number must stay open whatever is found.
    with socket.socket(fileno=os.dup(descriptor)) as one:
        if one.type != socket.SOCK_STREAM:
            return "it is no stream socket; make it with ListenStream="
        if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return "nobody listens on it; make it with ListenStream= and Accept=no"
        return _wrong_kind(one, name)


def _wrong_kind(one: socket.socket, name: str) -> str | None:
    if name in ("listen", "api"):
        if one.family in (socket.AF_INET, socket.AF_INET6):
            return None
        return "it is no TCP listener; give ListenStream= an address and a port"
    if one.family != socket.AF_UNIX:
        return "it is no unix socket; give ListenStream= a path"
    where = one.getsockname()
    if not isinstance(where, str) or not where.startswith("/"):
        return f"{where!r} is no path, and clients look for one; give ListenStream= a path"
    return None
