"""What a client of a storm relies on, in each way there is; all of it looks at every byte.

A grip is taken on a path that was answered a moment ago.  What is gone by then
is an error at the open, and no grip; what was taken stays, and stays the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import subprocess
import time
from contextlib import closing
from pathlib import Path

from tests.system.models import Content


class Gone(Exception):
    """The model was evicted between the answer and the open."""


class Grip:
    """A claim on what is at ``path``, until ``until`` on the monotonic clock if that is given."""

    def __init__(self, path: Path, content: Content, until: float | None = None) -> None:
        self.path = path
        self.content = content
        self.until = until

    @property
    def lapsed(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def look(self) -> None:
        """Every byte is there and right, or the claim is over by now."""
        try:
            whole = self.content.is_at(self.path)
        except OSError:
            if not self.lapsed:
                raise
        else:
            assert whole or self.lapsed, f"{self.path}, relied on, is not whole"

    def let_go(self) -> None:
        """A pin is let go by a call instead."""


class Mapping(Grip):
    """A file that is mapped, its descriptor closed: nothing but the kernel knows of it."""

    def __init__(self, path: Path, content: Content, file: str) -> None:
        super().__init__(path, content)
        self._expected = hashlib.sha256(dict(content.files)[file]).digest()
        try:
            descriptor = os.open(path / file, os.O_RDONLY)
        except FileNotFoundError:
            raise Gone from None
        try:
            self._bytes = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            stays = _still(path / file, descriptor)
        finally:
            os.close(descriptor)
        if not stays:
            # Opened while it went.  What could be reached is whole all the same.
            with closing(self._bytes):
                self._look_at_the_bytes()
            raise Gone

    def look(self) -> None:
        self._look_at_the_bytes()
        super().look()

    def let_go(self) -> None:
        self._bytes.close()

    def _look_at_the_bytes(self) -> None:
        assert hashlib.sha256(self._bytes).digest() == self._expected, f"{self.path} is torn"


class Hold(Grip):
    """A shared lock on the directory that was answered."""

    def __init__(self, path: Path, content: Content) -> None:
        super().__init__(path, content)
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            raise Gone from None
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        if not _still(path, self._descriptor):
            self.let_go()
            raise Gone

    def let_go(self) -> None:
        os.close(self._descriptor)


class Flock(Grip):
    """The same by the program of that name, around another; both end with whoever began them."""

    def __init__(self, path: Path, content: Content) -> None:
        super().__init__(path, content)
        self._process = subprocess.Popen(
            ["flock", "-s", os.fspath(path), "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != b"ready\n" or not path.exists():
            self.let_go()
            raise Gone

    def let_go(self) -> None:
        self._process.communicate()


def _still(path: Path, descriptor: int) -> bool:
    """Whether ``path`` names what is open as ``descriptor``."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
