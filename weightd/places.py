"""Where the socket is when nobody says: the same place for the daemon and its clients.

Paths are text here, since a command that only asks where a model is should
not wait for pathlib.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

SOCKET_VARIABLE: Final = "WEIGHTD_SOCKET"
ROOT_VARIABLE: Final = "WEIGHTD_ROOT"

SOCKET_NAME: Final = "weightd.sock"
REPLICA_SOCKET_NAME: Final = "replica.sock"
"""What weightd-replica.socket, and the manifests, call the socket for replicas of any user."""

SYSTEM_SOCKET: Final = f"/run/weightd/{SOCKET_NAME}"
"""That of a daemon which root runs, or systemd."""


def default_socket(environ: Mapping[str, str], uid: int) -> str:
    """``$RUNTIME_DIRECTORY`` as systemd sets it, /run/weightd for root, else the user's own."""
    given = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return f"{given}/{SOCKET_NAME}" if given else users_socket(environ, uid)


def users_socket(environ: Mapping[str, str], uid: int) -> str:
    """/run/weightd for root, else the user's own.

    Without ``$XDG_RUNTIME_DIR`` (a shell that no login manager opened) it is a
    directory named for the user below the one for temporary files.
    """
    if uid == 0:
        return SYSTEM_SOCKET
    given = environ.get("XDG_RUNTIME_DIR")
    if given is not None and given.startswith("/"):
        return f"{given.rstrip('/')}/weightd/{SOCKET_NAME}"
    return f"{_temporary()}/weightd-{uid}{'/' if given is None else '/weightd/'}{SOCKET_NAME}"


def client_sockets(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where a client looks for the daemon, in order.

    Where it is told, and nowhere else; otherwise where a daemon of its own would
    be, then where one that root or systemd runs is.  A ``$RUNTIME_DIRECTORY`` may be the
    client's own service's, and says nothing when no socket is in it.
    """
    if environ.get(SOCKET_VARIABLE):
        return (environ[SOCKET_VARIABLE],)
    places = (default_socket(environ, uid), users_socket(environ, uid), SYSTEM_SOCKET)
    return tuple(dict.fromkeys(places))


def _temporary() -> str:
    # It takes as long to import as all else that asking for a path needs.
    from tempfile import gettempdir

    return gettempdir()
