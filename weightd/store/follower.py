"""The sha256 of a file that arrives in any order, taken in file order behind the writers.

It is read from the page cache, where it is since a moment ago, by a thread of
its own: no writer waits for it, and at the end little is left to be done.
"""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Final

from weightd.store.source import BUFFER_BYTES

BEGIN_BYTES: Final = 4 << 20
"""A file gets a thread when so much of it can be read; a smaller one is read at its end."""

STEP_BYTES: Final = 2 << 20
"""The thread is woken for so much, since waking it costs the writers something, too."""


class Follower:
    """Hashes what of one file is here from its start on.  It never waits for the writers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._digest = hashlib.sha256()
        self._hashed = 0
        self._ready = 0
        self._ending = False
        self._thread: threading.Thread | None = None
        self._failure: OSError | None = None

    @property
    def hashed(self) -> int:
        """Up to where the file has been read; it is not read there again."""
        return self._hashed

    def reached(self, descriptor: int, ready: int) -> None:
        """Say that the file is here up to ``ready``."""
        with self._changed:
            self._ready = max(self._ready, ready)
            if self._thread is not None:
                if self._ready - self._hashed >= STEP_BYTES:
                    self._changed.notify()
            elif self._ready - self._hashed >= BEGIN_BYTES and not self._ending:
                name = f"sha256 of {self._name}"
                self._thread = threading.Thread(target=self._follow, args=(descriptor,), name=name)
                self._thread.start()

    def finish(self, descriptor: int, size: int) -> str:
        """The sha256 of the file's ``size`` bytes, all of which are here.  Raises OSError."""
        self.stop()
        if self._failure is not None:
            raise self._failure
        buffer = memoryview(bytearray(min(BUFFER_BYTES, max(1, size - self._hashed))))
        while self._hashed < size:
            self._hash(descriptor, buffer[: size - self._hashed])
        return self._digest.hexdigest()

    def stop(self) -> None:
        """End the thread.  Idempotent."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, descriptor: int) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        try:
            while self._wait():
                while not self._ending and (size := self._ready - self._hashed):
                    self._hash(descriptor, buffer[: min(size, BUFFER_BYTES)])
        except OSError as error:
            self._failure = error

    def _wait(self) -> bool:
        """Wait for bytes to hash; False when this is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._ready - self._hashed >= STEP_BYTES)
            return not self._ending

    def _hash(self, descriptor: int, view: memoryview) -> None:
        count = os.preadv(descriptor, [view], self._hashed)
        if count == 0:
            raise OSError(None, f"it ended at {self._hashed}")
        self._digest.update(view[:count])
        self._hashed += count
