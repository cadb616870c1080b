"""What the state machine of a cache puts, fetches and uploads."""

from __future__ import annotations

import hashlib

from tests.cache.doubles import bytes_of
from tests.cache.naive import SHARED, SHARED_BLOCKS, Copy
from tests.cache.node import BLOCK
from weightd.model import FileEntry, content_digest


def blocks_of(key: str, seed: int) -> int:
    """Each content has one size: some pairs fit, some do not, one never does."""
    return {"a": (2, 5, 3), "b": (4, 4, 7), "org/c": (1, 6, 13)}[key][seed]


OWN = "own"

FETCHED = 100
"""What is fetched has other seeds than what is put."""


def body_of(key: str, seed: int) -> bytes:
    """The file that no other copy has.  One byte less is as many blocks."""
    if seed < FETCHED:
        return bytes_of(f"{key} {seed}", blocks_of(key, seed) * BLOCK - 1)
    blocks = {"a": (1, 3, 2), "b": (2, 2, 5), "org/c": (1, 4, 11)}[key][seed - FETCHED]
    return bytes_of(f"fetched {key} {seed}", blocks * BLOCK - 1)


def files_of(key: str, seed: int) -> dict[str, bytes]:
    """What is fetched."""
    shared = bytes_of(SHARED, SHARED_BLOCKS * BLOCK)
    return {OWN: body_of(key, seed), SHARED: shared}


def name_of(copy: Copy) -> str:
    """Where the file stands that no other copy has."""
    return OWN if copy.seed >= FETCHED else copy.key.rpartition("/")[2]


def own_blocks(key: str, seed: int) -> int:
    """Of the file that no other copy has."""
    return (len(body_of(key, seed)) + 1) // BLOCK


def digest_of(copy: Copy) -> str:
    """Of what is fetched."""
    return content_digest(
        [
            FileEntry(path, len(body), hashlib.sha256(body).hexdigest())
            for path, body in files_of(copy.key, copy.seed).items()
        ]
    )
