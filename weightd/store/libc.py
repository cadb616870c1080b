"""Calls of the C library that Python does not offer."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any


def call(name: str, *arguments: ctypes._SimpleCData[Any] | ctypes.Array[ctypes.c_ubyte]) -> bool:
    """Make a call that answers 0; False where the C library does not have it.

    Raises OSError with the call's own number, except for one that was interrupted,
    which is made again.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        return False
    while function(*arguments) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True
