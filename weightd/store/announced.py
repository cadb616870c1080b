"""A file as its writer announced it, before he wrote it."""

from __future__ import annotations

from dataclasses import dataclass

from weightd.model import Digest


@dataclass(frozen=True, slots=True)
class Announced:
    """``bytes`` is its length; without ``sha256`` whatever it has is taken."""

    path: str
    bytes: int
    sha256: Digest | None = None
