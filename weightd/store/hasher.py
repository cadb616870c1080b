"""sha256 in a thread of its own, a few small buffers behind whoever fills them.

Hashing takes as long as receiving and writing together; beside them, on another
core, it costs an arrival no time.  The buffers stay in the cores' caches, so
that what was received a moment ago is hashed and written from there: 8 of
256 KiB measured faster than 4 of 512 KiB, and than hashing what is read back
from the page cache.
"""

from __future__ import annotations

import hashlib
from queue import SimpleQueue
from threading import Thread
from typing import Final

BUFFER_BYTES: Final = 256 << 10
BUFFERS: Final = 8


class Hasher:
    """Hashes one file after the other, through one ring of buffers.

    For one thread, which again and again takes a `buffer`, fills it, hands it on
    by `update`, and may still read it until it takes the next; `hexdigest` ends
    the file.  `close` ends it, too, when it came to nothing.
    """

    def __init__(self) -> None:
        self._free: SimpleQueue[memoryview] = SimpleQueue()
        self._full: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()
        self._made = 0
        self._digest = hashlib.sha256()
        self._thread: Thread | None = None

    def buffer(self) -> memoryview:
        """The next to fill.  Waits while all are still to be hashed."""
        if self._free.empty() and self._made < BUFFERS:
            self._made += 1
            return memoryview(bytearray(BUFFER_BYTES))
        return self._free.get()

    def update(self, buffer: memoryview, count: int) -> None:
        """Hash the first ``count`` bytes of what `buffer` gave, which is full but at the end."""
        if self._thread is None and count < len(buffer):
            # All of a small file: waking a thread would take longer.
            self._hash(buffer, count)
            return
        if self._thread is None:
            self._thread = Thread(target=self._run, name="weightd-sha256")
            self._thread.start()
        self._full.put((buffer, count))

    def hexdigest(self) -> str:
        """The file's sha256, once all of it is hashed; the next file begins."""
        self.close()
        digest, self._digest = self._digest.hexdigest(), hashlib.sha256()
        return digest

    def close(self) -> None:
        """End the thread, after what it has before it.  Idempotent."""
        if self._thread is not None:
            self._full.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (piece := self._full.get()) is not None:
            self._hash(*piece)

    def _hash(self, buffer: memoryview, count: int) -> None:
        self._digest.update(buffer[:count])
        self._free.put(buffer)
