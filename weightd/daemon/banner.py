"""What the daemon says when it is ready: where everything is, and one call to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weightd import __version__
from weightd.settings import shortage
from weightd.units import format_bytes


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """All sizes in bytes; ``listener`` and ``api`` are the addresses bound, None when they are off.

    ``open_token`` is the file of a token that everybody on the node may read.
    ``passed_otherwise`` says of each door that was passed where its setting is not that.
    ``others`` is what is on the filesystem and not weightd's.
    """

    root: Path
    socket: Path
    replica_socket: Path | None
    listener: str | None
    api: str | None
    open_token: Path | None
    passed_otherwise: Sequence[str]
    capacity: int
    min_free: int
    models: int
    resident: int
    foreign: Sequence[str]
    system_disk: bool
    filesystem_total: int
    others: int


def banner(at: Whereabouts) -> str:
    """Lines for a person; the log holds the same as fields."""
    lines = [
        f"weightd {__version__} is ready",
        f"  root      {at.root}",
        f"  models    {at.models} found, {_amount(at.resident)}",
        f"  budget    {_amount(at.capacity)}",
        f"  min free  {_amount(at.min_free)} stay free on the filesystem",
        f"  socket    {at.socket} (the whole API)",
        *_replica(at.replica_socket),
        f"  listener  {_listener(at.listener)}",
        *_api(at.api),
        *(f"  note      {note}" for note in notes(at)),
        f"  try       curl --unix-socket {at.socket} http://localhost/v1/status",
    ]
    return "\n".join(lines)


def notes(at: Whereabouts) -> list[str]:
    """What an operator should know before the first model arrives."""
    said = list(at.passed_otherwise)
    if short := shortage(at.capacity, at.min_free, at.filesystem_total, at.others):
        said.append(short)
    if at.foreign:
        shown = ", ".join(repr(name) for name in at.foreign[:5])
        more = f" and {len(at.foreign) - 5} more" if len(at.foreign) > 5 else ""
        said.append(f"not weightd's and left alone: {shown}{more}")
    if at.system_disk:
        said.append("the root is on the node's system disk; models want a disk of their own")
    if at.open_token is not None:
        said.append(f"everybody here may read the token in {at.open_token}; chmod o-r keeps it")
    return said


def _replica(path: Path | None) -> list[str]:
    return [] if path is None else [f"  replica   {path} (look up, read, pin as who you are)"]


def _listener(listener: str | None) -> str:
    return "off" if listener is None else f"http://{listener} (read-only: /metrics, /healthz, …)"


def _api(address: str | None) -> list[str]:
    return [] if address is None else [f"  api       http://{address} (the whole API, by token)"]


def _amount(count: int) -> str:
    return f"{format_bytes(count)} ({count} bytes)"
