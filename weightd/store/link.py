"""Giving a published file one more name, in an arrival that has it too."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weightd.model import FileEntry, GenerationId
from weightd.store import check, layout, manifest_file, tree
from weightd.store.content import Content
from weightd.store.manifest_file import Stamp, Unreadable
from weightd.store.root import Root

_Files = dict[str, tuple[FileEntry, Stamp]]

# One name more than the filesystem gives a file, or one of another owner.
_UNABLE: Final = frozenset({errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP})


class Linker:
    """Links files of published models; one thread at a time uses it."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._files: dict[GenerationId, _Files] = {}

    def link(self, content: Content, entry: FileEntry, source: GenerationId, path: str) -> Stamp:
        """Link what ``source`` has at ``path`` as ``entry``; how it stands.

        Raises FileNotFoundError when it is not there as it was published, or
        cannot be linked; OSError.
        """
        published, stamp = self._published(source, path)
        if (published.bytes, published.sha256) != (entry.bytes, entry.sha256):
            raise FileNotFoundError(f"{path} of {source.key} is of other content")
        parent, _, name = f"{source.key.last_segment}/{path}".rpartition("/")
        with self._directory(source, parent) as directory:
            try:
                status = content.link(directory, name, entry.path)
            except OSError as error:
                if error.errno in _UNABLE:
                    raise FileNotFoundError(f"{path}: {error.strerror}") from error
                raise
        fault = check.fault(published, stamp, status)
        if fault is not None:
            content.unlink(entry.path)
            raise FileNotFoundError(fault)
        return Stamp.of(status)

    @contextmanager
    def _directory(self, source: GenerationId, path: str) -> Iterator[int]:
        try:
            descriptor = tree.open_below(
                self._root.models, f"{layout.generation_name(source)}/{path}", tree.DIRECTORY_FLAGS
            )
        except NotADirectoryError as error:
            raise FileNotFoundError(f"{path} of {source.key} is no directory") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _published(self, source: GenerationId, path: str) -> tuple[FileEntry, Stamp]:
        if source not in self._files:
            self._files[source] = self._read(source)
        try:
            return self._files[source][path]
        except KeyError:
            raise FileNotFoundError(f"{source.key} has no {path}") from None

    def _read(self, source: GenerationId) -> _Files:
        name = layout.generation_name(source)
        try:
            with tree.opened(name, self._root.models):
                record = manifest_file.read(name, self._root.models)
        except (NotADirectoryError, Unreadable) as error:
            raise FileNotFoundError(str(error)) from error
        files = zip(record.manifest.files, record.stamps, strict=True)
        return {entry.path: (entry, stamp) for entry, stamp in files}
