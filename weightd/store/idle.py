"""Reading only when nobody else wants the disk."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from weightd.store import libc

_IOPRIO_SET: Final[Mapping[str, int]] = MappingProxyType(
    {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}
)
"""The number of a call that no C library wraps."""

_WHO_PROCESS: Final = 1
_CLASS_IDLE: Final = 3 << 13


def idle_reads() -> bool:
    """Have the calling thread's reads served last, for good; whether the kernel took it.

    BFQ serves them when the disk is idle or now and then, and mq-deadline after all others
    or in the end (10 s).  The schedulers ``none`` and ``kyber`` heed no such word: there a
    reader that waits for each of its reads, and has but one at a time, leaves the rest of
    the disk to others by that alone.  The thread is not made nicer to the processor: one
    that is put off while it holds the interpreter would put off the event loop, too.
    """
    number = _IOPRIO_SET.get(platform.machine())
    if number is None:
        return False
    arguments = (ctypes.c_int(_WHO_PROCESS), ctypes.c_int(0), ctypes.c_int(_CLASS_IDLE))
    try:
        return libc.call("syscall", ctypes.c_long(number), *arguments)
    except OSError:
        # A container's filter, say.  It reads as others do, then.
        return False
