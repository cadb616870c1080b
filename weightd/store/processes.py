"""Which processes use an inode, as far as this process may see them.

It names users; it does not find them.  Locks and mappings of other pid
namespaces, and of other users' processes without the privilege, do not show
here, while `store.seize` meets them all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

SECONDS_MAX: Final = 2.0
"""How long a search through /proc goes on; what it has found by then is the answer."""


class Inode(NamedTuple):
    """A file or directory, as ``stat`` numbers it."""

    device: int
    number: int


class Process(NamedTuple):
    """A process and the name of its command."""

    pid: int
    name: str


class Flock(NamedTuple):
    """A `flock` that somebody has; ``pid`` is 0 where its owner is not to be seen.

    ``inode`` is numbered as the kernel's own tables do it, whose device is on
    some filesystems not the one that ``stat`` tells.
    """

    pid: int
    exclusive: bool
    inode: Inode


def flocks() -> list[Flock]:
    """Every `flock` that shows here; those of other pid namespaces need not."""
    found = []
    for line in _lines("/proc/locks"):
        # 1: FLOCK  ADVISORY  READ 1234 fd:00:5678 0 EOF; a lock that waits has a "->" more.
        words = line.split()
        if len(words) == 8 and words[1] == "FLOCK":
            major, minor, number = words[5].split(":")
            inode = Inode(os.makedev(int(major, 16), int(minor, 16)), int(number))
            found.append(Flock(max(0, int(words[4])), words[3] == "WRITE", inode))
    return found


def lockers(
    locks: Collection[Flock], inodes: Collection[Inode]
) -> dict[Inode, tuple[Process, ...]]:
    """For each of ``inodes`` the processes that have one of the ``locks`` on it."""
    found: dict[Inode, tuple[Process, ...]] = {}
    for pid, inode in sorted({(lock.pid, lock.inode) for lock in locks if lock.inode in inodes}):
        # Who took it may be gone, and a child of his have it now.
        if pid and (process := _process(pid)) is not None:
            found[inode] = (*found.get(inode, ()), process)
    return found


def alive(process: Process) -> bool:
    """Whether the process is still there under the name it had."""
    return _process(process.pid) == process


def users(inodes: Collection[Inode]) -> dict[Inode, Process]:
    """For each of ``inodes`` a process that has it mapped or open."""
    found: dict[Inode, Process] = {}
    deadline = time.monotonic() + SECONDS_MAX
    for pid in _pids():
        if time.monotonic() > deadline or len(found) == len(inodes):
            break
        for inode in (*_mapped(pid), *_open(pid)):
            if inode in inodes and inode not in found and (process := _process(pid)) is not None:
                found[inode] = process
    return found


def _pids() -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != own:
            yield int(name)


def _mapped(pid: int) -> Iterator[Inode]:
    for line in _lines(f"/proc/{pid}/maps"):
        # 7f00-7f10 r--s 00000000 fd:00 5678   /path; an anonymous mapping has inode 0.
        words = line.split(maxsplit=5)
        if len(words) >= 5 and words[4] != "0":
            major, minor = words[3].split(":")
            yield Inode(os.makedev(int(major, 16), int(minor, 16)), int(words[4]))


def _open(pid: int) -> Iterator[Inode]:
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return  # it ended, or it is another user's
    for name in names:
        try:
            status = os.stat(f"{directory}/{name}")
        except OSError:
            continue  # closed meanwhile
        yield Inode(status.st_dev, status.st_ino)


def _process(pid: int) -> Process | None:
    """The process of that number, None when it is gone."""
    name = next(_lines(f"/proc/{pid}/comm"), None)
    return None if name is None else Process(pid, name)


def _lines(path: str) -> Iterator[str]:
    """The lines of a file of /proc, none if its process ended or is another user's.

    The kernel ends a line by a newline, and escapes that one character in a path: whoever
    names a file otherwise makes no line.
    """
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")
    except OSError:
        return
