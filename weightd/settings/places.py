"""Where things are when nobody says: the same for the daemon and its clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from weightd import places

CONFIG: Final = Path("/etc/weightd/weightd.toml")
KUBELET: Final = Path("/var/lib/kubelet")


def default_root(environ: Mapping[str, str], uid: int) -> Path:
    """``$CACHE_DIRECTORY`` as systemd sets it, /var/cache for root, else the user's cache."""
    given = environ.get("CACHE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    if uid == 0:
        return Path("/var/cache/weightd")
    return _absolute(environ, "XDG_CACHE_HOME", _home(environ) / ".cache") / "weightd"


def default_socket(environ: Mapping[str, str], uid: int) -> Path:
    """The socket that clients find by themselves; see `weightd.places`."""
    return Path(places.default_socket(environ, uid))


def on_system_disk(path: Path) -> bool:
    """Whether ``path`` (or its nearest parent that exists) shares the disk of / or of kubelet.

    Filling that disk stops the node, not just the cache.
    """
    device = nearest_existing(path).stat().st_dev
    return any(other.stat().st_dev == device for other in (Path("/"), KUBELET) if other.is_dir())


def filesystem_total(path: Path) -> int:
    """Bytes of the filesystem of ``path``, used plus available: what ``df``'s Use% counts."""
    figures = os.statvfs(nearest_existing(path))
    return (figures.f_blocks - figures.f_bfree + figures.f_bavail) * figures.f_frsize


def nearest_existing(path: Path) -> Path:
    """``path``, or the nearest of its parents that exists.

    Raises PermissionError when this user may not look.
    """
    while not path.exists():
        path = path.parent
    return path


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _absolute(environ: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    """A directory from the environment; one that is not absolute is ignored, as XDG demands."""
    given = environ.get(variable, "")
    return Path(given) if given.startswith("/") else otherwise
