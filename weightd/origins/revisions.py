"""A name for the state of an origin that has no commits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from weightd.origins.contract import RemoteFile


def revision_of(files: Iterable[RemoteFile]) -> str | None:
    """A digest of paths, lengths, and what else tells contents apart.

    None where a file has nothing that does.
    """
    digest = hashlib.sha256()
    for file in files:
        mark = file.sha256 or file.validator
        if mark is None:
            return None
        digest.update(f"{file.path}\n{file.bytes}\n{mark}\n".encode())
    return digest.hexdigest()[:40]
