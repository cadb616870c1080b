"""The directory of an arrival that will be handed out, while it is being filled."""

from __future__ import annotations

import os
import stat
import threading
from contextlib import ExitStack
from typing import Final

from weightd.model import Key
from weightd.store import arrival, layout, progress, tree
from weightd.store.progress import Progress
from weightd.store.root import Root
from weightd.store.source import Wrote

_FILLING_MODE: Final = 0o755
_PASSAGE_MODE: Final = 0o711


class Content:
    """``incoming/<id>/<last segment>``; every path is below it.

    Every method but `close` may be called from any thread.  All raise OSError.
    """

    def __init__(self, root: Root, id: str, name: str, *, found: bool) -> None:
        """Make it, or take over what an earlier run left."""
        self.root = root
        self.blocks = 0
        """Bytes of blocks that the arrival has on the disk, as it was told of them."""
        self._changing = threading.Lock()
        self._progress: Progress | None = None
        self.directories: set[str] = set()
        """Those that are there, as paths below."""
        with ExitStack() as undo:
            self._generation = os.open(id, tree.DIRECTORY_FLAGS, dir_fd=root.incoming)
            undo.callback(os.close, self._generation)
            if found:
                self._tidy()
            if not (found and tree.exists(name, self._generation)):
                os.mkdir(name, _FILLING_MODE, dir_fd=self._generation)
            self.descriptor = os.open(name, tree.DIRECTORY_FLAGS, dir_fd=self._generation)
            undo.callback(os.close, self.descriptor)
            if found:
                self._open_up(self.descriptor, "")
            undo.pop_all()

    def close(self) -> None:
        """Let every descriptor go."""
        if self._progress is not None:
            self._progress.close()
        os.close(self.descriptor)
        os.close(self._generation)

    @property
    def generation(self) -> int:
        """A descriptor of the directory around it, in which weightd's own files are."""
        return self._generation

    def progress(self) -> Progress:
        """Where it is written down what of each part is here."""
        with self._changing:
            if self._progress is None:
                self._progress = Progress(self._generation, self.root.boot)
            return self._progress

    def counted(self, size: int) -> None:
        """So many bytes of blocks more, or fewer when negative, are on the disk."""
        with self._changing:
            self.blocks += size

    def make_directory(self, path: str) -> None:
        """Make a directory and those on its way; what is there stays.  By one thread at a time."""
        if not path or path in self.directories:
            return
        parent, _, name = path.rpartition("/")
        self.make_directory(parent)
        with tree.opened_below(self.descriptor, parent) as directory:
            os.mkdir(name, _FILLING_MODE, dir_fd=directory)
        self.directories.add(path)

    def create(self, path: str) -> int:
        """Create the file and the directories on its way; what somebody put there is an error."""
        with self._changing:
            self.make_directory(path.rpartition("/")[0])
        return tree.open_below(self.descriptor, path, tree.CREATE_FLAGS)

    def reopen(self, path: str) -> int:
        """Open a file that an earlier run left, for reading and writing."""
        descriptor = tree.open_below(self.descriptor, path, tree.READ_FLAGS)
        try:
            # It may have been whole and read-only already.
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        return tree.open_below(self.descriptor, path, tree.REWRITE_FLAGS)

    def link(self, source: int, name: str, path: str) -> os.stat_result:
        """Give the file ``name`` in the directory ``source`` one more name, at ``path``."""
        parent, _, last = path.rpartition("/")
        with self._changing:
            self.make_directory(parent)
        with tree.opened_below(self.descriptor, parent) as directory:
            os.link(name, last, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
            return os.stat(last, dir_fd=directory, follow_symlinks=False)

    def status(self, path: str) -> os.stat_result | None:
        """What stands at a path, None when nothing does."""
        parent, _, name = path.rpartition("/")
        try:
            with tree.opened_below(self.descriptor, parent) as directory:
                return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, path: str, *, wrote: Wrote) -> None:
        """Take away what is at a path, and first what was written down of it."""
        self.progress().forget(path)
        self.root.reach("part.forgotten")
        gone = self.unlink(path)
        if gone:
            self.counted(-gone)
            wrote(-gone)

    def unlink(self, path: str) -> int:
        """Take away the name ``path``, if there is one; the bytes of blocks that went with it."""
        status = self.status(path)
        if status is None:
            return 0
        parent, _, name = path.rpartition("/")
        with tree.opened_below(self.descriptor, parent) as directory:
            os.unlink(name, dir_fd=directory)
        lone = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return tree.occupied(status, self.root.block) if lone else 0

    def lend(self) -> None:
        """Let others pass, whatever the umask; what they write may have holes, if it ever goes."""
        os.fchmod(self._generation, _PASSAGE_MODE)
        os.close(os.open(progress.NAME, tree.CREATE_FLAGS, 0o600, dir_fd=self._generation))

    def note(self, key: Key, record: bytes) -> None:
        """Write the owner's note, for good."""
        arrival.write(self._generation, key, record)
        os.fsync(self.root.incoming)

    def flush_way(self, path: str) -> None:
        """Bring the names of a file and of the directories on its way to stable storage."""
        parent = path.rpartition("/")[0]
        while parent:
            with tree.opened_below(self.descriptor, parent) as directory:
                os.fsync(directory)
            parent = parent.rpartition("/")[0]
        os.fsync(self.descriptor)

    def flush(self) -> None:
        """Bring the arrival's own names to stable storage, and what its progress says."""
        if self._progress is not None:
            self._progress.flush()
        for path in ("", *self.directories):
            with tree.opened_below(self.descriptor, path) as directory:
                os.fsync(directory)
        os.fsync(self._generation)
        os.fsync(self.root.incoming)

    def _tidy(self) -> None:
        """Take away a manifest: the publication that wrote it did not come to its end."""
        with tree.listing(self._generation) as entries:
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        for name in names:
            if name.lstrip(".") == layout.MANIFEST:
                os.unlink(name, dir_fd=self._generation)

    def _open_up(self, directory: int, path: str) -> None:
        """Find the directories there are; a publication may have made them read-only."""
        os.fchmod(directory, _FILLING_MODE)
        with tree.listing(directory) as entries:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in below:
            self.directories.add(path + name)
            with tree.opened(name, directory) as child:
                self._open_up(child, f"{path}{name}/")
