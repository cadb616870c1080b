"""Where content is that an arrival could link to instead of bringing it once more."""

from __future__ import annotations

from typing import TypeAlias

from weightd.ledger.generations import Generation
from weightd.model import Blob, Digest, GenerationId

_Content: TypeAlias = tuple[Digest, int]


class Contents:
    """Every blob of a generation that can be reached and is not damaged, by what it holds."""

    def __init__(self) -> None:
        self._holders: dict[_Content, dict[GenerationId, Blob]] = {}

    def find(self, sha256: Digest, bytes: int) -> tuple[GenerationId, Blob] | None:
        """The generation that came last with this content, and its blob."""
        holders = self._holders.get((sha256, bytes))
        return None if holders is None else next(reversed(holders.items()))

    def enter(self, generation: Generation) -> None:
        """A generation can be linked to from now on, unless it is damaged."""
        if generation.damaged:
            return
        for blob in generation.blobs:
            self._holders.setdefault((blob.sha256, blob.bytes), {})[generation.id] = blob

    def remove(self, generation: Generation) -> None:
        """It can be linked to no more; asked twice this does nothing."""
        for blob in generation.blobs:
            content = (blob.sha256, blob.bytes)
            holders = self._holders.get(content)
            if holders is not None:
                holders.pop(generation.id, None)
                if not holders:
                    del self._holders[content]
