"""An arrival's directories, opened to the user who is to fill them.

By root they are given to him.  By anybody else he is let in by an access
control list, and the files that he announced are made ahead, so that what he
writes into them is ours from the start; see `ownership`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from weightd.errors import Forbidden, InvalidRequest
from weightd.store import ownership, tree
from weightd.store.announced import Announced
from weightd.store.content import Content
from weightd.store.root import Root

_WRITER_MODE: Final = 0o700
_PASSAGE_MODE: Final = 0o711
_FILE_MODE: Final = 0o660

AHEAD_BYTES: Final = 64 << 20
"""So much files may hold beyond their ends, all together, without being asked why."""

SPARE_FILES: Final = 1000
"""So many a tool may have beside those that it was told to make, and as many again.

The same goes for directories.
"""

_NO_LISTS: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def open_to(root: Root, content: Content, uid: int, gid: int, files: Sequence[Announced]) -> None:
    """Let a user write below an arrival's directory, and nobody else.

    Raises Forbidden where he can only be let in by a list and the filesystem
    has none, and OSError.
    """
    for parent in {file.path.rpartition("/")[0] for file in files}:
        content.make_directory(parent)
    content.lend()
    if uid == os.geteuid():
        return
    # To pass through, and not to list: what is there has names that nobody guesses.
    os.fchmod(root.incoming, _PASSAGE_MODE)
    listed = False
    for path in ("", *sorted(content.directories)):
        with tree.opened_below(content.descriptor, path) as directory:
            if not ownership.give(directory, uid, gid, _WRITER_MODE):
                _list(directory, uid)
                listed = True
    if listed:
        for file in files:
            _make(content, file.path)


def _list(directory: int, uid: int) -> None:
    try:
        ownership.let_in(directory, uid)
    except OSError as error:
        if error.errno not in _NO_LISTS:
            raise
        reason = (
            f"weightd, which runs as user {os.geteuid()}, cannot let user {uid} write here: the "
            "filesystem has no access control lists"
        )
        raise Forbidden(reason=reason, door="PUT /v1/models/KEY, which takes the bytes") from None


def _make(content: Content, path: str) -> None:
    """Make a file that is ours; the directory's list says who may write to it."""
    descriptor = tree.open_below(content.descriptor, path, tree.CREATE_FLAGS)
    try:
        os.fchmod(descriptor, _FILE_MODE)
    finally:
        os.close(descriptor)


def occupied(content: Content, block: int, announced: int) -> int:
    """The bytes of blocks that are there by now, whoever wrote them.

    Raises InvalidRequest for far more files than the ``announced``, or than
    directories that those need, and for what nobody could look into; and OSError.
    Files may hold less than their length, and more.  Some filesystems take up
    to twice the length while a file grows, and give it back: that much is not
    held against its writer.
    """
    found = {}
    directories = _Counted("directories", len(content.directories))
    files = _Counted("files", announced)
    # Closed also when it is left early, and with it the directories that it is in.
    with closing(tree.walk(content.descriptor, entering=directories.more)) as leaves:
        try:
            for leaf in leaves:
                if leaf.status.st_ino not in found:
                    files.more(leaf.path)
                found[leaf.status.st_ino] = leaf.status
        except tree.TooDeep as error:
            raise InvalidRequest(what="upload", reason=str(error.strerror)) from None
    length = sum(tree.occupied(status, block) for status in found.values())
    held = sum(status.st_blocks * 512 for status in found.values())
    return length if held <= 2 * length + AHEAD_BYTES else held


class _Counted:
    """Things of a ``kind`` that an upload has, of which so many were ``announced``."""

    def __init__(self, kind: str, announced: int) -> None:
        self._kind = kind
        self._announced = announced
        self._found = 0

    def more(self, _: str) -> None:
        """Count one.  Raises InvalidRequest when there are far too many."""
        self._found += 1
        most = 2 * self._announced + SPARE_FILES
        if self._found > most:
            reason = f"more than {most} {self._kind} are in it, {self._announced} were announced"
            raise InvalidRequest(what="upload", reason=reason)
