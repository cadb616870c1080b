"""Whose a directory below an arrival is: another user's for a while, and ours again.

Root gives it away.  Who may not do that lets the other user in by an access
control list, which names him beside us and nobody else: what stands there
already stays ours while he writes to it, and what he makes anew is his.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from contextlib import suppress
from typing import Final, NamedTuple

ACCESS: Final = "system.posix_acl_access"
DEFAULT: Final = "system.posix_acl_default"
"""What a file or directory that is made in it starts with, whatever the umask."""

_VERSION: Final = 2
_NOBODY: Final = 0xFFFFFFFF
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_ALL: Final = 0o7
_ALL_OF_A_FILE: Final = 0o6

_NONE: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})


class Before(NamedTuple):
    """What `own` changes, as it was."""

    status: os.stat_result
    lists: tuple[tuple[str, bytes], ...]


def before(descriptor: int) -> Before:
    """Whose it is and who may do what.  Raises OSError."""
    found = []
    for name in (ACCESS, DEFAULT):
        try:
            found.append((name, os.getxattr(descriptor, name)))
        except OSError as error:
            if error.errno not in _NONE:
                raise
    return Before(os.fstat(descriptor), tuple(found))


def own(descriptor: int, mode: int) -> None:
    """Make it ours, and let in whom ``mode`` does and nobody else.

    Raises PermissionError, nothing being changed, where it is another user's
    and this one may not; and OSError.
    """
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.fchown(descriptor, os.geteuid(), os.getegid())
    # First the mode, which keeps out at once whom a list names.
    os.fchmod(descriptor, mode)
    for name in (ACCESS, DEFAULT):
        try:
            os.removexattr(descriptor, name)
        except OSError as error:
            if error.errno not in _NONE:
                raise


def give_back(descriptor: int, was: Before) -> None:
    """Let it be as it was before `own`, but for a file's setuid and setgid.  Raises OSError."""
    mode = stat.S_IMODE(was.status.st_mode)
    if not stat.S_ISDIR(was.status.st_mode):
        # It is still ours, and whoever has it open could run it as us.
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
    os.fchmod(descriptor, mode)
    for name, value in was.lists:
        os.setxattr(descriptor, name, value)
    give_to(descriptor, was.status.st_uid, was.status.st_gid)


def give_to(descriptor: int, uid: int, gid: int) -> None:
    """Let it belong to a user again, and to a group.  Raises OSError."""
    status = os.fstat(descriptor)
    if status.st_uid != uid:
        os.fchown(descriptor, uid, gid)
    elif status.st_gid != gid:
        # One that the owner is not in only root can give it to.
        with suppress(PermissionError):
            os.fchown(descriptor, -1, gid)


def give(descriptor: int, uid: int, gid: int, mode: int) -> bool:
    """Give it to a user; False where only root may.  Raises OSError."""
    if os.geteuid() != 0:
        return False
    try:
        os.fchown(descriptor, uid, gid)
    except PermissionError:
        # Root without that capability, or on a filesystem that does not know him as root.
        return False
    os.fchmod(descriptor, mode)
    return True


def let_in(descriptor: int, uid: int) -> None:
    """Let a user do beside us what we may, in a directory also with what is made there.

    Raises OSError, EOPNOTSUPP above all: not every filesystem has such lists.
    """
    directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    may = _ALL if directory else _ALL_OF_A_FILE
    entries = [(_OWNER, may, _NOBODY)]
    entries += [(_USER, may, one) for one in sorted({uid, os.geteuid()})]
    entries += [(_GROUP, 0, _NOBODY), (_MASK, may, _NOBODY), (_OTHERS, 0, _NOBODY)]
    packed = struct.pack("<I", _VERSION)
    packed += b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(descriptor, ACCESS, packed)
    if directory:
        os.setxattr(descriptor, DEFAULT, packed)
