"""Asking the kernel whether anybody has a file open or mapped.

``F_SETLEASE F_WRLCK`` is granted only while the asking descriptor is the only
one on the inode, through whatever name, mapping or mount namespace.  Whoever
opens the file while the lease stands waits, and the holder is told by SIGIO,
**whose default action ends the process**.  Two things guard against it: the
descriptor's signal is set to SIGURG, ignored by default, before each lease;
and `ignore_breaks` ignores SIGIO where a signal's action can be set at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from typing import Final

from weightd.store import tree

# What a filesystem without leases, or a file of another owner, answers.
UNABLE: Final = frozenset(
    {errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.ENOSYS}
)


def ignore_breaks() -> None:
    """Ignore SIGIO, if this is the main thread; elsewhere SIGURG alone has to do, and does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGIO, signal.SIG_IGN)


def nobody_writes(descriptor: int) -> bool:
    """Whether nobody has the file open or mapped for writing, as far as the kernel tells."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno in UNABLE:
            return True
        if error.errno != errno.EAGAIN:
            raise
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def take(descriptor: int) -> bool:
    """Take a write lease; False when somebody else has the file open or mapped.

    Raises OSError when the kernel will not say.  Closing the descriptor gives
    the lease back.
    """
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


def unbroken(descriptor: int) -> bool:
    """Whether nobody has begun to wait on the lease that stands on ``descriptor``."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK


def probe(name: str, parent: int) -> bool:
    """Whether leases tell use on the filesystem of ``name``: refused with a second opener.

    A reader of the file who is there by chance does no harm: a refusal is what
    is looked for.  Raises OSError when the file cannot be opened.
    """
    first = os.open(name, tree.READ_FLAGS, dir_fd=parent)
    try:
        second = os.open(name, tree.READ_FLAGS, dir_fd=parent)
        try:
            if take(first):
                return False
        finally:
            os.close(second)
        take(first)
    except OSError as error:
        if error.errno in UNABLE:
            return False
        raise
    finally:
        os.close(first)
    return True
