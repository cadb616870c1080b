"""A process that is made to stand still for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Process(Protocol):
    """A child of this process."""

    pid: int

    def send_signal(self, number: int, /) -> None: ...


@contextmanager
def frozen(process: Process) -> Iterator[None]:
    """Stop every thread of it, and wait until they stand still; they go on afterwards."""
    process.send_signal(signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        yield
    finally:
        process.send_signal(signal.SIGCONT)
