"""What a storm puts: keys that everybody shares, and the few contents that each may have."""

from __future__ import annotations

import random
from functools import cache
from typing import Final

from tests.system.models import Content, directory, single

KEYS: Final = tuple(f"storm/model-{number}" for number in range(30)) + tuple(
    f"storm/deep/er/model@v{number}" for number in range(10)
)

SIZES: Final = (3_000, 40_000, 150_000, 400_000, 900_000)
VARIANTS: Final = 3


@cache
def content(key: str, variant: int) -> Content:
    """One of the contents of ``key``; the last of them is a directory."""
    size = random.Random(key).choice(SIZES)
    make = directory if variant == VARIANTS - 1 else single
    return make(key, size, variant)


def content_of(key: str, digest: str) -> Content:
    """The content of ``key`` whose digest begins like this; no other was ever put."""
    for variant in range(VARIANTS):
        if content(key, variant).digest.startswith(digest):
            return content(key, variant)
    raise AssertionError(f"{key} is answered with {digest}, which nobody put")
