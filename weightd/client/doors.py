"""Where the daemon is looked for, and what to say when it cannot be reached there."""

from __future__ import annotations

import os

from weightd.places import REPLICA_SOCKET_NAME, client_sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightd.client.faults import NoAnswer, Unreachable


def places_of(socket: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """The socket that is named, or those that are found without a name, in order."""
    if socket is not None:
        return (os.fspath(socket),)
    return client_sockets(os.environ, os.geteuid())


def unreachable(tried: Iterable[tuple[str, OSError]]) -> Unreachable:
    """The error of having failed at each place; one that is there and forbidden says most."""
    from weightd.client.faults import SocketForbidden, Unreachable

    failed = list(tried)
    for place, error in failed:
        if isinstance(error, PermissionError):
            return SocketForbidden(
                place, _words(error), group=_group(place), replica=_replica(place)
            )
    place, error = failed[-1]
    return Unreachable(place, _words(error), tuple(place for place, _ in failed))


def broken(place: str, error: Exception) -> Unreachable:
    """The error of a connection that was lost, or of a peer that speaks something else."""
    from weightd.client.faults import Unreachable

    words = _words(error) if isinstance(error, OSError) else str(error)
    return Unreachable(place, words)


def silent(place: str, seconds: float) -> NoAnswer:
    from weightd.client.faults import NoAnswer

    return NoAnswer(place, seconds)


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _replica(place: str) -> str | None:
    """The replicas' socket, if it has its usual name beside ``place`` and this user may open it."""
    beside = os.path.join(os.path.dirname(place), REPLICA_SOCKET_NAME)
    return beside if os.access(beside, os.W_OK) else None


def _group(place: str) -> str | None:
    """The group that may open a socket, where this user can see it and it has a name."""
    import grp

    try:
        return grp.getgrgid(os.stat(place).st_gid).gr_name
    except (OSError, KeyError):
        return None
