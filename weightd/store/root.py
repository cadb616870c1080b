"""Taking a root: the lock, the format, the three directories.

A root is taken in an order that leaves a newer weightd's root untouched:
lock, FORMAT read, directories made, FORMAT written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from weightd.errors import Draining, RootUnusable
from weightd.failpoints import Reach
from weightd.store import layout, lease, tree

# models/ is walked by every replica; the other two are nobody's business.
_DIRECTORY_MODES: Final = {layout.MODELS: 0o755, layout.INCOMING: 0o700, layout.DOOMED: 0o700}
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_FORMAT_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Root:
    """A root that is locked by this process, and the descriptors of its directories."""

    path: Path
    lock: int
    directory: int
    models: int
    incoming: int
    doomed: int
    block: int
    file_mode: int
    group: int | None
    leases_work: bool
    boot: str
    reach: Reach
    stopping: threading.Event = field(default_factory=threading.Event)

    def must_go_on(self) -> None:
        """Raise Draining once whoever reads or copies a whole file is to give it up."""
        if self.stopping.is_set():
            raise Draining

    def close(self) -> None:
        """Give every descriptor back, the lock last."""
        for descriptor in (self.models, self.incoming, self.doomed, self.directory, self.lock):
            os.close(descriptor)


def take(path: Path, *, file_mode: int, group: int | None, boot: str | None, reach: Reach) -> Root:
    """Lock the root at ``path``, making what is missing.  Raises RootUnusable."""
    path = Path(os.path.abspath(path))
    with ExitStack() as undo, _explained(path):
        directory = _open_root(path)
        undo.callback(os.close, directory)
        lock = _lock(path, directory)
        undo.callback(os.close, lock)
        found = _read_format(path, directory)
        descriptors = {}
        for name, mode in _DIRECTORY_MODES.items():
            descriptors[name] = _directory(path, directory, name, mode)
            undo.callback(os.close, descriptors[name])
        if found is None:
            _write_format(directory, descriptors[layout.INCOMING])
        root = Root(
            path=path,
            lock=lock,
            directory=directory,
            models=descriptors[layout.MODELS],
            incoming=descriptors[layout.INCOMING],
            doomed=descriptors[layout.DOOMED],
            block=os.fstatvfs(directory).f_frsize,
            file_mode=file_mode,
            group=group,
            leases_work=lease.probe(layout.FORMAT, directory),
            boot=_BOOT_ID.read_text().strip() if boot is None else boot,
            reach=reach,
        )
        undo.pop_all()
        return root


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an OSError met while a root is taken into one line."""
    try:
        yield
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        at = error.filename if isinstance(error.filename, str) else ""
        where = f" ({at})" if at and at != str(path) else ""
        advice = {
            errno.EACCES: "give this user write access to it, or set another root",
            errno.EPERM: "give this user write access to it, or set another root",
            errno.EROFS: "the filesystem is read-only; remount it, or set another root",
            errno.ENOSPC: "free space on its filesystem",
            errno.ENOTDIR: "a root is a directory; set another root",
        }.get(error.errno or 0, "see to the disk, or set another root")
        raise RootUnusable(f"{path} cannot be used as root: {what}{where}; {advice}") from error


def _open_root(path: Path) -> int:
    if path.is_symlink():
        raise RootUnusable(
            f"{path} is a symlink, and paths handed out must not change under their readers; "
            f"set the root to {os.path.realpath(path)}"
        )
    if path.exists() and not path.is_dir():
        raise RootUnusable(f"{path} is not a directory; set the root to one, or move it away")
    _make(path)
    return os.open(path, tree.DIRECTORY_FLAGS)


def _make(path: Path) -> None:
    """Make ``path`` and what is missing above it, each on stable storage in its parent."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o755, exist_ok=True)
        parent = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def _lock(path: Path, directory: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(layout.LOCK, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        owner = f"another weightd (pid {pid})" if pid.isdigit() else "another weightd"
        raise RootUnusable(
            f"{path} is owned by {owner}; stop it first, or give this one its own root"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    _write_pid(descriptor)
    return descriptor


def prove(root: Root) -> None:
    """Write a few bytes into the root and flush them.  Raises OSError.

    They are the lock's own, once more: nothing is made that a crash could leave, and a disk
    that is full takes them, unless it copies what is written to.
    """
    os.pwrite(root.lock, _pid(), 0)
    os.fsync(root.lock)


def _pid() -> bytes:
    return f"{os.getpid()}\n".encode()


def _write_pid(descriptor: int) -> None:
    """Tell a second daemon who the first is; a full disk must not keep the first from starting."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _pid(), 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _read_format(path: Path, directory: int) -> int | None:
    """The format of the root, None for a new one.  Raises RootUnusable for one not understood."""
    try:
        descriptor = os.open(layout.FORMAT, tree.READ_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        text = os.read(descriptor, _FORMAT_BYTES_MAX).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if not (text.isascii() and text.isdigit()):
        raise RootUnusable(
            f"{path / layout.FORMAT} says {text!r}, not a format number; "
            "restore it, or set another root"
        )
    if int(text) > layout.FORMAT_VERSION:
        raise RootUnusable(
            f"{path} has format {text}, and this weightd reads up to {layout.FORMAT_VERSION}; "
            "run the release that wrote it, or set another root"
        )
    return int(text)


def _directory(path: Path, parent: int, name: str, mode: int) -> int:
    """Open one of our directories, made when it is missing, and never through a link."""
    made = False
    if not tree.exists(name, parent):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = True
    try:
        descriptor = os.open(name, tree.DIRECTORY_FLAGS, dir_fd=parent)
    except NotADirectoryError:
        raise RootUnusable(
            f"{path / name} is not a directory, and weightd follows no link; move it away"
        ) from None
    if made:
        # Not left to the umask, under which workers might not read.
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        os.fsync(parent)
    if os.fstat(descriptor).st_dev != os.fstat(parent).st_dev:
        os.close(descriptor)
        raise RootUnusable(
            f"{path / name} is on another filesystem than {path}, so nothing could be renamed "
            "into it; mount the whole root instead"
        )
    return descriptor


def _write_format(directory: int, incoming: int) -> None:
    """Put FORMAT in place whole: a crash leaves debris below incoming/, never half a number."""
    name = layout.new_id()
    os.mkdir(name, 0o700, dir_fd=incoming)
    with tree.opened(name, incoming) as workbench:
        data = f"{layout.FORMAT_VERSION}\n".encode()
        tree.write_flushed(layout.FORMAT, data, workbench, 0o644)
        os.rename(layout.FORMAT, layout.FORMAT, src_dir_fd=workbench, dst_dir_fd=directory)
    os.fsync(directory)
    os.rmdir(name, dir_fd=incoming)
