"""Which generations use which blobs, so that a shared byte is counted once.

A blob is *kept* when a guarded generation uses it, *evictable* when only
unguarded ones do; it is counted as retired when nothing but retired
generations use it, and as doomed when only names are left that are about to be
unlinked: the last of them frees it.  The sums are kept as uses change, so that an
admission over ten thousand models does not add them up again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weightd.model import Blob


@dataclass(slots=True)
class _Uses:
    total: int = 0
    retired: int = 0
    guarded: int = 0
    doomed: int = 0


class BlobTable:
    """The uses of every blob on disk, and the bytes they come to."""

    def __init__(self) -> None:
        self._uses: dict[Blob, _Uses] = {}
        self.occupied = 0
        self.retired = 0
        self.kept = 0
        self.doomed = 0

    @property
    def resident(self) -> int:
        """Bytes of blobs that at least one resident generation uses."""
        return self.occupied - self.retired

    @property
    def evictable(self) -> int:
        """Bytes that would go if every unguarded generation went."""
        return self.occupied - self.kept

    def users(self, blob: Blob) -> int:
        """How many generations use ``blob``."""
        uses = self._uses.get(blob)
        return 0 if uses is None else uses.total

    def change(
        self,
        blobs: Iterable[Blob],
        *,
        total: int = 0,
        retired: int = 0,
        guarded: int = 0,
        doomed: int = 0,
    ) -> int:
        """Add to the counts of uses of each blob, all of them different.

        Answers by how many bytes the sum of those in use fell.
        """
        before = self.occupied
        for blob in blobs:
            uses = self._uses.get(blob)
            if uses is None:
                uses = self._uses[blob] = _Uses()
            else:
                self._count(blob, uses, -1)
            uses.total += total
            uses.retired += retired
            uses.guarded += guarded
            uses.doomed += doomed
            if uses.total == 0 and uses.doomed == 0:
                del self._uses[blob]
            else:
                self._count(blob, uses, 1)
        return before - self.occupied

    def _count(self, blob: Blob, uses: _Uses, sign: int) -> None:
        size = blob.bytes * sign
        if uses.total:
            self.occupied += size
            if uses.retired == uses.total:
                self.retired += size
            if uses.guarded:
                self.kept += size
        elif uses.doomed:
            self.doomed += size
