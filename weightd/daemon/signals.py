"""The signals that the daemon answers, from before the store opens until the end.

SIGTERM and SIGINT ask for a graceful end, and at the second one the process
goes at once: what was acknowledged is on stable storage.  SIGHUP, whose default is
death, asks for the settings to be read again, and SIGUSR1, whose default is the same, for
debugging to be logged, or no longer.  SIGIO, with which the kernel announces that somebody
waits for a lease and whose default is death too, is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import Final

from weightd.daemon.logs import Level

log = logging.getLogger(__name__)

_ENDS: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """``stop`` is set by the first signal that asks for an end, ``hung_up`` by every SIGHUP."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self.stop = asyncio.Event()
        self.hung_up = asyncio.Event()

    def watch(self) -> None:
        """Take the signals over; call it in the loop's thread, the main one."""
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGHUP, self.hung_up.set)
        loop.add_signal_handler(signal.SIGUSR1, self._toggle)
        for number in _ENDS:
            loop.add_signal_handler(number, self._end, number)

    def _toggle(self) -> None:
        now = self._level.toggle()
        # Whatever is logged from now on, this line is.
        log.log(
            max(logging.INFO, logging.getLogger().level),
            "SIGUSR1: the level is another; a second one, or SIGHUP, takes it back",
            extra={"log_level": now},
        )

    def _end(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            log.warning("asked to end again: going at once", extra={"signal": number.name})
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        log.info("asked to end", extra={"signal": number.name})
        self.stop.set()
