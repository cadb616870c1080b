"""The paths of one arrival: no duplicates, no file that is also a directory, bounded."""

from __future__ import annotations

from typing import Final

from weightd.model import FILES_MAX
from weightd.store import descriptors

NAME_BYTES_MAX: Final = 16 << 20
"""Bounds what the names of one model cost in memory and in its manifest."""


class Names:
    """Paths taken so far.  ``add_*`` answer why a path cannot be taken, or None."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._directories: set[str] = set()
        self._bytes = 0
        # What could never be seized could never be evicted: one descriptor is the directory's.
        self._most = min(FILES_MAX, descriptors.most() - 1)

    def add_file(self, path: str) -> str | None:
        """Take a file's path; its directories are implied."""
        if path in self._files:
            return "its name stands twice"
        if path in self._directories:
            return "it is a file and a directory"
        if (reason := self._add_parents(path)) is not None:
            return reason
        self._files.add(path)
        return self._count(path)

    def add_directory(self, path: str) -> str | None:
        """Take a directory's path; naming it again is no fault."""
        if path in self._files:
            return "it is a file and a directory"
        if (reason := self._add_parents(path)) is not None or path in self._directories:
            return reason
        self._directories.add(path)
        return self._count(path)

    def _add_parents(self, path: str) -> str | None:
        parent = path.rpartition("/")[0]
        while parent and parent not in self._directories:
            if parent in self._files:
                return f"its directory {parent!r} is a file"
            self._directories.add(parent)
            if (reason := self._count(parent)) is not None:
                return reason
            parent = parent.rpartition("/")[0]
        return None

    def _count(self, path: str) -> str | None:
        self._bytes += len(path.encode())
        if len(self._files) + len(self._directories) > self._most:
            return f"there are more than {self._most} files and directories" + self._because()
        if self._bytes > NAME_BYTES_MAX:
            return f"the names have more than {NAME_BYTES_MAX} bytes together"
        return None

    def _because(self) -> str:
        if self._most == FILES_MAX:
            return ""
        return (
            f"; evicting more would pass the {descriptors.limit()} files that this daemon may "
            "have open (LimitNOFILE), which can be raised"
        )
